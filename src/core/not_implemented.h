// The exception that an emptied exercise block (apps/course) throws. It becomes NotImplementedError
// in Python. Only files with such blocks include this header.
#pragma once

#include <cstdio>
#include <stdexcept>

namespace needle {

struct NotImplemented : std::logic_error {
  explicit NotImplemented(const char* message);
  ~NotImplemented() override;
};

#ifdef __CUDACC__  // a kernel cannot throw: the GPU prints the message, and the launch has failed
[[noreturn]] static inline __host__ __device__ void not_implemented(const char* message) {
#ifdef __CUDA_ARCH__
  printf("NotImplementedError: %s\n", message);
  __trap();
#else
  throw NotImplemented(message);
#endif
}
#else
[[noreturn]] void not_implemented(const char* message);
#endif

}  // namespace needle
