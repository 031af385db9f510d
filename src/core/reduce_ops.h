// The reductions, one row each, by their names in the backend interface. Each target's reduce file
// defines how two values combine, because that depends on its accumulators.
#pragma once

#include <cstdint>

namespace needle {

#define NEEDLE_REDUCE_OPS(ROW) ROW(sum) ROW(prod) ROW(max) ROW(min) ROW(any) ROW(all)

enum class ReduceOp : std::uint8_t {
#define NEEDLE_ROW(name) name,
  NEEDLE_REDUCE_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

inline constexpr const char* kReduceNames[] = {
#define NEEDLE_ROW(name) #name,
    NEEDLE_REDUCE_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

}  // namespace needle
