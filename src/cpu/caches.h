// The data caches of a core of this machine, which decide how products are cut into blocks.
#pragma once

#include <cstdint>

namespace needle {

// Sizes in bytes. L1 can hold `l1_ways` lines whose addresses differ by multiples of l1 /
// l1_ways.
struct Caches {
  std::int64_t line, l1, l1_ways, l2;
};

// Reads the sizes once. A size that the system does not report is assumed to be that of a common
// core.
const Caches& caches();

}  // namespace needle
