#include "cpu_features.h"

#include <cstring>

namespace needle {

bool cpu_supports(const char* name) {
  if (std::strcmp(name, "baseline") == 0) return true;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2");
  if (std::strcmp(name, "avx2") == 0) return avx2;
  if (std::strcmp(name, "avx512") == 0) {
    return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#elif defined(__aarch64__)
  if (std::strcmp(name, "neon") == 0) return true;  // part of the architecture
#endif
  return false;
}

}  // namespace needle
