// Declares the steps of an augmentation program that are compiled once per instruction set, and the
// table through which program.cc calls them. They are in the namespace of the instruction set that
// this translation unit is compiled for (-DNEEDLE_ISA=...). As in src/cpu, nothing here may have
// weak linkage: use anonymous namespaces, static functions, and ThreadScratch instead of
// std::vector.
//
// `in` may have any strides, negative ones too (flips), and is not written; all of its pixels are
// valid memory. resize and affine: out has adjacent channels and does not overlap
// in.
#pragma once

#include <cstdint>

#include "data/image.h"
#include "data/window.h"

namespace needle::data {

// Resizes the whole image (at least 1x1) to height x width, of which only `part` is computed.
struct Scaling {
  std::int64_t height, width;
  Rectangle part;
  bool bilinear, antialias;
};

template <class T>
struct ImageSteps {
  // out has the part's size.
  void (*resize)(const Image<T>& in, const Image<T>& out, const Scaling& scaling);
  // `m` is a, b, c, d, e, f. The pixel centre (X, Y) of `out` takes the value of `in` at (aX + bY +
  // c, dX + eY + f), or `fill` if that is outside of `in`.
  void (*affine)(const Image<T>& in, const Image<T>& out, const double m[6], bool bilinear,
                 double fill);
  // `m` is a 3x4 matrix, row-major. Images have 1 or 3 channels and any strides, and `in` may be
  // `out`. The program passes single rows as planes (column_stride is 1, channel_stride that of the
  // planes), which must be fast.
  void (*colour)(const Image<T>& in, const Image<T>& out, const float m[12]);
};

struct StepTable {
  const char* isa;
  ImageSteps<std::uint8_t> bytes;
  ImageSteps<float> floats;
  // Applies the pointwise stages to a window and writes the output's layout and type.
  void (*emit)(const Emission& emission);

  template <class T>
  const ImageSteps<T>& of() const {
    if constexpr (sizeof(T) == 1) return bytes;
    if constexpr (sizeof(T) == 4) return floats;
  }
};

#ifdef NEEDLE_ISA
namespace NEEDLE_ISA {

void resize(const Image<std::uint8_t>& in, const Image<std::uint8_t>& out, const Scaling& scaling);
void resize(const Image<float>& in, const Image<float>& out, const Scaling& scaling);
void affine(const Image<std::uint8_t>& in, const Image<std::uint8_t>& out, const double m[6],
            bool bilinear, double fill);
void affine(const Image<float>& in, const Image<float>& out, const double m[6], bool bilinear,
            double fill);
void colour(const Image<std::uint8_t>& in, const Image<std::uint8_t>& out, const float m[12]);
void colour(const Image<float>& in, const Image<float>& out, const float m[12]);
void emit(const Emission& emission);

extern const StepTable steps;

}  // namespace NEEDLE_ISA
#endif

}  // namespace needle::data
