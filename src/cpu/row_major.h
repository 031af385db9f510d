// Copies of views for kernels whose loops take one layout: pooling, batch norm, random numbers.
#pragma once

#include "core/scratch.h"
#include "core/view_rules.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// The view itself if the kernel can use it, else a view of uninitialised row-major memory of its
// shape.
struct RowMajor {
  const View& whole;
  const bool in_place;
  const Scratch memory;
  const View view;

  RowMajor(const View& v, bool in_place)
      : whole(v),
        in_place(in_place),
        memory(in_place ? 0 : static_cast<std::size_t>(size_of(v)) * size_of(v.dtype)),
        view(in_place ? v : row_major(v, memory.as<void>())) {}
  void load() const {
    if (!in_place) copy(whole, view);
  }
  void store() const {
    if (!in_place) copy(view, whole);
  }
};

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
