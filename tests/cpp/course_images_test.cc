// Compares the image kernels that parts 7 and 8 of the course empty (apps/course/parts) with plain
// loops, on every instruction set of this machine. tests/exercises selects tests by their names.
#include "data/select.h"
#include "expect.h"

namespace needle {
namespace {

using testing::compact;
using Byte = std::uint8_t;
using Index = std::int64_t;

// ---- pooling: (N, H, W, C), channels contiguous ----

constexpr Index kImages = 2, kHeight = 7, kWidth = 9;

struct Pooling {
  Index channels;
  Pool2dParams p;

  Index rows() const { return (kHeight + 2 * p.padding.h - p.kernel.h) / p.stride.h + 1; }
  Index columns() const { return (kWidth + 2 * p.padding.w - p.kernel.w) / p.stride.w + 1; }
  Index pixels() const { return kImages * kHeight * kWidth * channels; }
  Index results() const { return kImages * rows() * columns() * channels; }
  Index place(Index n, Index y, Index x, Index c) const {
    return ((n * kHeight + y) * kWidth + x) * channels + c;
  }

  // Calls f(index of the result, the indices of the pixels in its window).
  template <class F>
  void each_window(F&& f) const {
    for (Index at = 0; at < results(); ++at) {
      const Index c = at % channels, j = at / channels % columns(),
                  i = at / channels / columns() % rows(), n = at / channels / columns() / rows();
      std::vector<Index> places;
      for (Index y = i * p.stride.h - p.padding.h; y < i * p.stride.h - p.padding.h + p.kernel.h;
           ++y) {
        for (Index x = j * p.stride.w - p.padding.w; x < j * p.stride.w - p.padding.w + p.kernel.w;
             ++x) {
          if (y >= 0 && y < kHeight && x >= 0 && x < kWidth) places.push_back(place(n, y, x, c));
        }
      }
      f(at, places);
    }
  }
};

// Returns `different` distinct negative integers; the first image's last channel has a NaN.
std::vector<float> pixels_of(const Pooling& pool, std::size_t different) {
  std::vector<float> x(std::size_t(pool.pixels()));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = -1 - float(i * 7919 % different);
  x[std::size_t(pool.place(0, 2, 3, pool.channels - 1))] = NAN;
  return x;
}

// Returns true if a value replaces the best one so far.
bool wins(float value, float best) { return value > best || (value != value && best == best); }

Index first_maximum(const std::vector<float>& x, const std::vector<Index>& places) {
  Index best = places[0];
  for (const Index at : places) {
    if (wins(x[std::size_t(at)], x[std::size_t(best)])) best = at;
  }
  return best;
}

// Returns the pixels of a window as text: "-1 -9 -6 -3".
std::string shown(const std::vector<float>& x, const std::vector<Index>& places) {
  std::string text;
  char number[16];
  for (const Index at : places) {
    std::snprintf(number, sizeof number, " %g", double(x[std::size_t(at)]));
    text += number;
  }
  return text;
}

bool same(float got, float want) { return got == want || (got != got && want != want); }

TEST(max_pool) {
  const Pool2dParams tiles{{2, 2}, {2, 2}, {0, 0}}, overlapping{{3, 3}, {2, 2}, {1, 1}};
  for (const Pooling& pool : {Pooling{19, tiles}, {3, tiles}, {37, overlapping}}) {
    std::vector<float> x = pixels_of(pool, 10007), got(std::size_t(pool.results()));
    testing::for_each_isa([&](const KernelTable& t) {
      const View in = compact(x.data(), {kImages, kHeight, kWidth, pool.channels});
      const View out = compact(got.data(), {kImages, pool.rows(), pool.columns(), pool.channels});
      t.max_pool2d(in, out, pool.p);
      pool.each_window([&](Index at, const std::vector<Index>& places) {
        const Index window = at / pool.channels;
        GIVEN(
            "%ld x %ld windows, steps of 2, padding %ld, %ld channels; channel %ld of window "
            "(%ld, %ld), whose pixels are%s",
            long(pool.p.kernel.h), long(pool.p.kernel.w), long(pool.p.padding.h),
            long(pool.channels), long(at % pool.channels),
            long(window / pool.columns() % pool.rows()), long(window % pool.columns()),
            shown(x, places).c_str());
        const float most = x[std::size_t(first_maximum(x, places))], is = got[std::size_t(at)];
        testing::likely(is == 0, "the fold starts with Fold::kNothing, not with 0");
        Index other = 0;
        std::vector<Index> moved = places;
        for (; other < pool.channels; ++other) {
          for (std::size_t k = 0; k < places.size(); ++k) {
            moved[k] = places[k] - at % pool.channels + other;
          }
          if (same(is, x[std::size_t(first_maximum(x, moved))])) break;
        }
        testing::likely(other < pool.channels, "the result of another channel: from + offset + c");
        if (!same(got[std::size_t(at)], most)) EXPECT_NEAR(got[std::size_t(at)], most, 0);
      });
      if (pool.p.padding.h != 0) return;  // the mean counts the pixels of whole windows
      t.avg_pool2d(in, out, pool.p);
      pool.each_window([&](Index at, const std::vector<Index>& places) {
        float sum = 0;
        for (const Index place : places) sum += x[std::size_t(place)];
        GIVEN("the mean of 2 x 2 windows, %ld channels; a window's pixels are%s",
              long(pool.channels), shown(x, places).c_str());
        testing::likely(got[std::size_t(at)] == sum, "this is the sum: fold.finish divides");
        if (sum == sum) EXPECT_NEAR(got[std::size_t(at)], sum / 4, 1e-6);
      });
    });
  }
}

TEST(max_pool_grad) {
  for (const Pooling& pool : {Pooling{19, {{2, 2}, {2, 2}, {0, 0}}},
                              {3, {{2, 2}, {2, 2}, {0, 0}}},
                              {37, {{3, 2}, {3, 2}, {0, 0}}}}) {
    // Only five different numbers, so that windows have ties.
    std::vector<float> x = pixels_of(pool, 5), got(x.size()), grad(std::size_t(pool.results()));
    for (std::size_t i = 0; i < grad.size(); ++i) grad[i] = float(i % 17) + 1;
    std::vector<float> want(x.size()), every(x.size()), last(x.size()), blind(x.size());
    pool.each_window([&](Index at, const std::vector<Index>& places) {
      const float gain = grad[std::size_t(at)];
      want[std::size_t(first_maximum(x, places))] += gain;
      Index newest = places[0], number = places[0];
      for (const Index place : places) {
        every[std::size_t(place)] += gain;
        const float value = x[std::size_t(place)], best = x[std::size_t(newest)];
        if (value >= best || wins(value, best)) newest = place;
        if (x[std::size_t(place)] > x[std::size_t(number)]) number = place;
      }
      last[std::size_t(newest)] += gain;
      blind[std::size_t(number)] += gain;
    });
    testing::for_each_isa([&](const KernelTable& t) {
      std::fill(got.begin(), got.end(), 93.0f);
      t.max_pool2d_grad(compact(grad.data(), {kImages, pool.rows(), pool.columns(), pool.channels}),
                        compact(x.data(), {kImages, kHeight, kWidth, pool.channels}),
                        compact(got.data(), {kImages, kHeight, kWidth, pool.channels}), pool.p);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const long pixel = long(i) / pool.channels;
        GIVEN("%ld x %ld windows side by side, %ld channels; row %ld, column %ld, channel %ld",
              long(pool.p.kernel.h), long(pool.p.kernel.w), long(pool.channels),
              pixel / kWidth % kHeight, pixel % kWidth, long(i) % pool.channels);
        testing::likely(got == every,
                        "only the maximum gets the gradient: all other pixels get zero");
        testing::likely(got == last, "the first maximum gets it, not the last one");
        testing::likely(got == blind, "a NaN in the window is the maximum; no comparison is true");
        testing::likely(got[i] == 93, "this pixel was not written");
        EXPECT_NEAR(got[i], want[i], 0);
      }
    });
  }
}

// ---- augmentation ----

// Calls f(steps) for every instruction set of this machine.
template <class F>
void for_each_steps(F&& f) {
  for (const std::string& isa : cpu::available_isas()) f(data::step_table(isa.c_str()));
}

// Crops planes of bytes by `left` columns and one row, mirrors them if requested, scales and
// normalises them into planes with a guard column after each row.
void check_rows(const data::StepTable& steps, Index inside, Index left, Index right,
                bool mirrored) {
  constexpr Index kRows = 2, kChannels = 2;
  const Index width = left + inside + right, stride = width + 1;
  std::vector<Byte> bytes(std::size_t(kChannels * kRows * inside));
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = Byte(i * 97 + 5);
  std::vector<float> got(std::size_t(kChannels * (kRows + 1) * stride), 93.0f);
  const float fill[] = {-7, -8}, numbers[] = {0.5f, 0.25f, 0.25f, 2.0f};
  const data::Stage stages[] = {{data::StageKind::kScale, nullptr},
                                {data::StageKind::kNormalize, numbers}};
  const data::Emission e{{bytes.data() + (mirrored ? inside - 1 : 0),
                          data::Element::kByte,
                          inside,
                          mirrored ? -1 : 1,
                          kRows * inside,
                          {0, left, kRows, left + inside},
                          kRows + 1,
                          width},
                         kChannels,
                         fill,
                         -1,
                         stages,
                         2,
                         nullptr,
                         0,
                         got.data(),
                         data::Element::kFloat,
                         stride,
                         1,
                         (kRows + 1) * stride};
  steps.emit(e);
  for (Index c = 0; c < kChannels; ++c) {
    for (Index y = 0; y <= kRows; ++y) {
      for (Index x = 0; x < stride; ++x) {
        GIVEN("%ld bytes, margins of %ld and %ld, %smirrored; row %ld, column %ld", long(inside),
              long(left), long(right), mirrored ? "" : "not ", long(y), long(x));
        const Index column = mirrored ? inside - 1 - (x - left) : x - left;
        const bool here = y < kRows && x >= left && x < left + inside;
        const Byte byte = here ? bytes[std::size_t((c * kRows + y) * inside + column)] : Byte(0);
        const double value = (byte / 255.0 - numbers[c]) / numbers[kChannels + c];
        const double want = x == width ? 93 : here ? value : fill[c];
        const float is = got[std::size_t((c * (kRows + 1) + y) * stride + x)];
        const Index other = (c * kRows + y) * inside + inside - 1 - column;
        testing::likely(x != width && is == 93, "the image is not written here, or the margin");
        testing::likely(x == width, "written beyond the end of the row");
        testing::likely(
            here && std::fabs((bytes[std::size_t(here ? other : 0)] / 255.0 - numbers[c]) /
                                  numbers[kChannels + c] -
                              is) < 1e-6,
            "a mirrored row runs backwards, any other forwards");
        testing::likely(
            here && is == fill[c],
            "the image is not written here: it starts at p.left, and rows have any length");
        EXPECT_NEAR(is, want, 1e-6);
      }
    }
  }
}

TEST(rows) {
  for_each_steps([](const data::StepTable& steps) {
    for (const bool mirrored : {false, true}) {
      for (Index inside = 1; inside < 40; ++inside) check_rows(steps, inside, 0, 0, mirrored);
      check_rows(steps, 20, 3, 0, mirrored);
      check_rows(steps, 20, 0, 5, mirrored);
      check_rows(steps, 3, 30, 18, mirrored);
    }
  });
}

// Matrices of quarters, so that sums are exact and rounding between bytes is known.
constexpr float kOfBytes[12] = {0.5f, 0.25f, -0.25f, 8, -0.5f, 1, 0.5f, 0.5f, 2, 0, 1, -40.5f};
constexpr float kOfFloats[12] = {0.5f, 0.25f, -0.25f, 0.25f, -0.5f, 1, 0.5f, 0, 2, 0, 1, -1};

float mixed(const float* matrix, const float* pixel, Index step, Index c) {
  const float* m = matrix + 4 * c;
  return m[0] * pixel[0] + m[1] * pixel[step] + m[2] * pixel[2 * step] + m[3];
}

TEST(colour) {
  constexpr Index kPixels = 500;  // more than fit into a small array at once
  for_each_steps([](const data::StepTable& steps) {
    Byte bytes[3 * 7], changed[3 * 7];
    for (Index i = 0; i < 3 * 7; ++i) bytes[i] = changed[i] = Byte(i * 89);
    const data::Image<Byte> few{changed, 1, 7, 3, 3 * 7, 3, 1};  // seven: too few for vector code
    steps.bytes.colour(few, few, kOfBytes);
    for (Index i = 0; i < 7; ++i) {
      const float pixel[3] = {float(bytes[3 * i]), float(bytes[3 * i + 1]),
                              float(bytes[3 * i + 2])};
      for (Index c = 0; c < 3; ++c) {
        GIVEN("bytes %g, %g, %g of pixel %ld of seven, in place; channel %ld", double(pixel[0]),
              double(pixel[1]), double(pixel[2]), long(i), long(c));
        const double value = std::nearbyint(mixed(kOfBytes, pixel, 1, c));
        float mixture[3] = {pixel[0], pixel[1], pixel[2]};
        for (Index k = 0; k <= c; ++k) {
          const double each = std::nearbyint(mixed(kOfBytes, mixture, 1, k));
          mixture[k] = float(each < 0 ? 0 : each > 255 ? 255 : each);
        }
        testing::likely(c > 0 && changed[3 * i + c] == mixture[c],
                        "in place: read r, g and b of a pixel before the first is stored");
        const double bare = std::nearbyint(mixed(kOfBytes, pixel, 1, c) - kOfBytes[4 * c + 3]);
        testing::likely(changed[3 * i + c] == (bare < 0     ? 0
                                               : bare > 255 ? 255
                                                            : bare),
                        "the fourth number of a row of the matrix is added");
        EXPECT_NEAR(changed[3 * i + c], value < 0 ? 0 : value > 255 ? 255 : value, 0);
      }
    }
    std::vector<float> planes(3 * kPixels), got(3 * kPixels, 93.0f);
    for (Index i = 0; i < 3 * kPixels; ++i) planes[std::size_t(i)] = float(i * 7 % 64) / 64;
    steps.floats.colour({planes.data(), 1, kPixels, 3, kPixels, 1, kPixels},
                        {got.data(), 1, kPixels, 3, 3 * kPixels, 3, 1}, kOfFloats);
    for (Index i = 0; i < kPixels; ++i) {
      for (Index c = 0; c < 3; ++c) {
        GIVEN("floats, planes to pixels; pixel %ld of 500, channel %ld", long(i), long(c));
        const float value = mixed(kOfFloats, planes.data() + i, kPixels, c);
        testing::likely(got[std::size_t(3 * i + c)] == 93,
                        "only the first piece was done: go on until count");
        EXPECT_NEAR(got[std::size_t(3 * i + c)], value < 0 ? 0 : value > 1 ? 1 : value, 0);
      }
    }
  });
}

}  // namespace
}  // namespace needle
