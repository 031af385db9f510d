// Pools one window with contiguous channels: blocks of channels stay in registers, and nothing is
// copied. Used by pooling.cc and pool_tiles.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/not_implemented.h"
#include "core/simd.h"
#include "core/view.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

// The pixels of a window or of any rectangle, relative to the first channel of its first pixel.
struct Pixels {
  std::int64_t rows, columns, row_stride, column_stride;

  // Calls f(offset) for each pixel, row by row.
  template <class F>
  [[gnu::always_inline]] void each(F&& f) const {
    for (std::int64_t y = 0; y < rows; ++y) {
      for (std::int64_t x = 0; x < columns; ++x) f(y * row_stride + x * column_stride);
    }
  }
};

// The pixels of a window whose size is known at compile time.
template <int kRows, int kColumns>
struct FixedPixels {
  std::int64_t row_stride, column_stride;

  template <class F>
  [[gnu::always_inline]] void each(F&& f) const {
#pragma GCC unroll 4
    for (int y = 0; y < kRows; ++y) {
#pragma GCC unroll 4
      for (int x = 0; x < kColumns; ++x) f(y * row_stride + x * column_stride);
    }
  }
};

// Calls f(V{}, n, channel) for each block of channels. The block has n vectors (n is a compile-time
// constant) and starts at `channel`; the last vector may overlap the one before. Channels too few
// for a vector are passed one by one, as f(T{}, 1, channel). With `beyond` they are one vector
// instead, which reaches past the pixel's channels, so the pixels that follow must be written
// later.
template <class T, class F>
[[gnu::always_inline]] inline void each_channel_block(std::int64_t channels, bool beyond, F&& f) {
  using V = simd::Vector<T>;
  constexpr std::int64_t W = simd::kLanes<T>;
  constexpr std::integral_constant<int, 1> one{};
  if (channels < W) {
    if (beyond) return f(V{}, one, std::int64_t{0});
    for (std::int64_t c = 0; c < channels; ++c) f(T{}, one, c);
    return;
  }
  std::int64_t c = 0;
  for (; c + 4 * W <= channels; c += 4 * W) f(V{}, std::integral_constant<int, 4>{}, c);
  for (; c + W <= channels; c += W) f(V{}, one, c);
  if (c < channels) f(V{}, one, channels - W);
}

using simd::get;
using simd::put;

// Writes the folded window to `to`, for all channels.
template <class T, class Fold, class Window>
[[gnu::always_inline]] inline void fold_pixels(const Fold& fold, const T* from,
                                               const Window& window, std::int64_t channels,
                                               bool beyond, T* to) {
  /// BEGIN SOLUTION [kernel-max-pool]
  each_channel_block<T>(channels, beyond, [&]<class V>(V, auto count, std::int64_t c) {
    constexpr int kCount = decltype(count)::value;
    constexpr std::int64_t kStep = sizeof(V) / sizeof(T);
    V best[kCount];
    for (int k = 0; k < kCount; ++k) best[k] = V{} + Fold::kNothing;
    window.each([&](std::int64_t offset) {
      for (int k = 0; k < kCount; ++k) {
        best[k] = Fold::fold(best[k], get<V>(from + offset + c + k * kStep));
      }
    });
    for (int k = 0; k < kCount; ++k) put(to + c + k * kStep, fold.finish(best[k]));
  });
  /// END SOLUTION
}

// Writes grad at the first maximum of each channel's window (the first NaN, if there is one), else
// 0.
template <class T, class Window>
[[gnu::always_inline]] inline void split_pixels(const T* from, const Window& window, const T* grad,
                                                std::int64_t channels, bool beyond, T* to,
                                                const Window& to_window) {
  /// BEGIN SOLUTION [kernel-max-pool-grad]
  each_channel_block<T>(channels, beyond, [&]<class V>(V, auto count, std::int64_t first) {
    using Places = std::conditional_t<sizeof(V) == sizeof(T), int, decltype(V{} < V{})>;
    constexpr std::int64_t kStep = sizeof(V) / sizeof(T);
    for (int k = 0; k < decltype(count)::value; ++k) {
      const std::int64_t c = first + k * kStep;
      V best = get<V>(from + c);
      Places places = {}, place = {};
      window.each([&](std::int64_t offset) {
        const V value = get<V>(from + offset + c);
        const auto wins = (value > best) | ((value != value) & (best == best));
        best = wins ? value : best;
        places = wins ? place : places;
        place += 1;
      });
      const V gain = get<V>(grad + c);
      place = Places{};
      to_window.each([&](std::int64_t offset) {
        const V part = places == place ? gain : V{};
        put(to + offset + c, part);
        place += 1;
      });
    }
  });
  /// END SOLUTION
}

// Writes grad * share to every pixel of the window.
template <class T, class Window>
[[gnu::always_inline]] inline void spread_pixels(const T* grad, T share, std::int64_t channels,
                                                 bool beyond, T* to, const Window& window) {
  each_channel_block<T>(channels, beyond, [&]<class V>(V, auto count, std::int64_t first) {
    constexpr std::int64_t kStep = sizeof(V) / sizeof(T);
    for (int k = 0; k < decltype(count)::value; ++k) {
      const std::int64_t c = first + k * kStep;
      const V part = get<V>(grad + c) * share;
      window.each([&](std::int64_t offset) { put(to + offset + c, part); });
    }
  });
}

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
