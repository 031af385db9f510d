// The distributions of the kernel row random, one row each, by their names in the backend
// interface. The formulas are in random_formulas.h.
#pragma once

#include <cstdint>

namespace needle {

#define NEEDLE_RANDOM_OPS(ROW) ROW(uniform) ROW(normal) ROW(bernoulli)

enum class RandomOp : std::uint8_t {
#define NEEDLE_ROW(name) name,
  NEEDLE_RANDOM_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

inline constexpr const char* kRandomNames[] = {
#define NEEDLE_ROW(name) #name,
    NEEDLE_RANDOM_OPS(NEEDLE_ROW)
#undef NEEDLE_ROW
};

}  // namespace needle
