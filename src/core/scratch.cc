#include "scratch.h"

#include <cstdlib>
#include <new>

namespace needle {

Scratch::Scratch(std::size_t bytes)
    : data_(std::aligned_alloc(64, bytes == 0 ? 64 : (bytes + 63) / 64 * 64)) {
  if (data_ == nullptr) throw std::bad_alloc();
}

Scratch::~Scratch() { std::free(data_); }

}  // namespace needle
