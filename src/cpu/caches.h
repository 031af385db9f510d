// The data caches of a core of this machine, which decide how products are cut into blocks.
#pragma once

#include <cstdint>

namespace needle {

// Sizes in bytes. `l1_ways` lines whose addresses differ by multiples of l1 / l1_ways share the
// first level.
struct Caches {
  std::int64_t line, l1, l1_ways, l2;
};

// Reads the sizes once; where the system does not report one, it is that of a common core.
const Caches& caches();

}  // namespace needle
