// The augmentation steps compiled per instruction set: each equals plain sums to the last bit, for
// every layout; and the tables of weights.
#include <random>

#include "data/resize_axis.h"
#include "data/select.h"
#include "expect.h"

using namespace needle;
using namespace needle::data;
using Byte = std::uint8_t;

namespace {

std::mt19937 generator(7);

std::int64_t number(std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(generator);
}

// An image in its own buffer with a guard border.
template <class T>
struct Picture {
  Picture(std::int64_t height, std::int64_t width, std::int64_t channels, bool planes, bool flipped)
      : values(std::size_t((height + 2) * (width + 2) * channels)) {
    for (T& v : values) v = T(number(0, 255));
    image = {values.data(), height, width, channels, (width + 2) * channels, channels, 1};
    if (planes) {
      image = {values.data(), height, width, channels, width + 2, 1, (height + 2) * (width + 2)};
    }
    image.data += image.row_stride + image.column_stride;
    if (flipped) {
      image.data += (width - 1) * image.column_stride + (height - 1) * image.row_stride;
      image.column_stride = -image.column_stride;
      image.row_stride = -image.row_stride;
    }
  }
  T& at(std::int64_t y, std::int64_t x, std::int64_t c) {
    return image.data[y * image.row_stride + x * image.column_stride + c * image.channel_stride];
  }
  std::vector<T> values;
  Image<T> image;
};

// Calls f(steps) for every instruction set of this machine.
template <class F>
void for_each_steps(F&& f) {
  for (const std::string& isa : cpu::available_isas()) f(step_table(isa.c_str()));
}

std::int64_t dot(const ResizeAxis& axis, std::int64_t i, const std::vector<std::int64_t>& values) {
  std::int64_t sum = 0;
  for (std::int64_t t = 0; t < axis.count[i]; ++t) {
    sum += axis.weight[i * axis.taps + t] * values[std::size_t(axis.first[i] + t)];
  }
  return sum;
}

// Returns one output value by the definition.
Byte resized(Picture<Byte>& in, const ResizeAxis& down, const ResizeAxis& across, std::int64_t i,
             std::int64_t j, std::int64_t c) {
  std::vector<std::int64_t> line(std::size_t(across.in)), column(std::size_t(down.in));
  for (std::int64_t x = 0; x < across.in; ++x) {
    for (std::int64_t y = 0; y < down.in; ++y) column[std::size_t(y)] = in.at(y, x, c);
    line[std::size_t(x)] = (dot(down, i, column) + 64) >> 7;
  }
  return Byte((dot(across, j, line) + (1 << 20)) >> 21);
}

void check_resize(const StepTable& steps, bool antialias) {
  const std::int64_t channels = number(1, 5);
  Picture<Byte> in(number(1, 40), number(1, 90), channels, number(0, 3) == 0, number(0, 1));
  const std::int64_t height = number(1, 30), width = number(1, 50);
  const std::int64_t top = number(0, 1) * number(0, height - 1);
  const std::int64_t left = number(0, 1) * number(0, width - 1);
  Picture<Byte> out(number(1, height - top), number(1, width - left), channels, false, false);
  const Rectangle part{top, left, top + out.image.height, left + out.image.width};
  const std::vector<Byte> before = out.values;
  steps.resize_bytes(in.image, out.image, {height, width, part, true, antialias});
  const ResizeAxis& down = resize_axis(in.image.height, height, antialias, false);
  const ResizeAxis& across = resize_axis(in.image.width, width, antialias, false);
  bool same = true;
  for (std::int64_t i = 0; i < out.image.height; ++i) {
    for (std::int64_t j = 0; j < out.image.width; ++j) {
      for (std::int64_t c = 0; c < channels; ++c) {
        same &= out.at(i, j, c) == resized(in, down, across, top + i, left + j, c);
        out.at(i, j, c) = before[std::size_t(&out.at(i, j, c) - out.values.data())];
      }
    }
  }
  EXPECT(same);
  EXPECT(out.values == before);  // the guard border is intact
}

Byte mixed(const float* m, float r, float g, float b) {
  volatile float sum = m[0] * r;  // each operation rounds separately
  volatile float part = m[1] * g;
  sum = sum + part;
  part = m[2] * b;
  sum = sum + part;
  sum = sum + m[3];
  const float value = sum;
  return Byte(value < 0 ? 0 : value > 255 ? 255 : std::nearbyint(value));
}

void check_colour(const StepTable& steps, bool diagonal) {
  Picture<Byte> in(number(1, 5), number(1, 300), 3, number(0, 1), number(0, 3) == 0);
  Picture<Byte> out(in.image.height, in.image.width, 3, number(0, 1), false);
  float m[12];
  for (int k = 0; k < 12; ++k) {
    const bool kept = !diagonal || k % 4 == 3 || k % 5 == 0;
    m[k] = kept ? float(number(-100, 100)) * (k % 4 == 3 ? 1.5f : 0.0137f) : 0.0f;
  }
  const std::vector<Byte> before = out.values;
  steps.colour_bytes(in.image, out.image, m);
  bool same = true;
  for (std::int64_t y = 0; y < in.image.height; ++y) {
    for (std::int64_t x = 0; x < in.image.width; ++x) {
      for (std::int64_t c = 0; c < 3; ++c) {
        same &= out.at(y, x, c) == mixed(m + 4 * c, in.at(y, x, 0), in.at(y, x, 1), in.at(y, x, 2));
        out.at(y, x, c) = before[std::size_t(&out.at(y, x, c) - out.values.data())];
      }
    }
  }
  EXPECT(same);
  EXPECT(out.values == before);
}

}  // namespace

TEST(weights_sum_to_one_and_halving_is_known) {
  for (bool antialias : {false, true}) {
    for (std::int64_t in : {1, 2, 3, 7, 64, 375, 1000}) {
      for (std::int64_t out : {1, 2, 5, 64, 224}) {
        const ResizeAxis& axis = resize_axis(in, out, antialias, false);
        for (std::int64_t i = 0; i < out; ++i) {
          EXPECT(axis.first[i] >= 0 && axis.first[i] + axis.count[i] <= in);
          EXPECT(dot(axis, i, std::vector<std::int64_t>(std::size_t(in), 1)) == 1 << kWeightBits);
        }
      }
    }
  }
  const ResizeAxis& half = resize_axis(8, 4, true, false);
  EXPECT(half.first[1] == 1 && half.count[1] == 4 && half.taps == 4);
  const std::int16_t wanted[4] = {2048, 6144, 6144, 2048};
  for (int t = 0; t < 4; ++t) EXPECT(half.weight[half.taps + t] == wanted[t]);
}

TEST(mirrored_weights_are_the_same_backwards) {
  for (std::int64_t out : {3, 8, 20}) {
    const ResizeAxis& axis = resize_axis(13, out, true, false);
    const ResizeAxis& mirrored = resize_axis(13, out, true, true);
    for (std::int64_t i = 0; i < out; ++i) {
      for (std::int64_t x = 0; x < 13; ++x) {
        std::vector<std::int64_t> here(13), there(13);
        here[std::size_t(x)] = there[std::size_t(12 - x)] = 1;
        EXPECT(dot(axis, i, here) == dot(mirrored, i, there));
      }
    }
  }
}

TEST(a_thread_keeps_the_tables_that_it_asked_for_last) {
  const ResizeAxis& first = resize_axis(100, 50, true, false);
  for (std::int64_t in = 1; in < 8; ++in) resize_axis(in, 50, true, false);
  EXPECT(first.in == 100 && &resize_axis(100, 50, true, false) == &first);
  for (std::int64_t in = 1; in < 100; ++in) EXPECT(resize_axis(in, 7, false, false).in == in);
}

TEST(nearest_places_are_of_the_pixel_centres) {
  EXPECT(nearest_place(0, 5, 2) == 1 && nearest_place(1, 5, 2) == 3);
  EXPECT(nearest_place(0, 1, 9) == 0 && nearest_place(8, 1, 9) == 0);
  for (std::int64_t i = 0; i < 9; ++i) EXPECT(nearest_place(i, 3, 9) == i / 3);
}

TEST(resized_bytes_are_the_definition_on_every_instruction_set) {
  for_each_steps([](const StepTable& steps) {
    for (int repeat = 0; repeat < 60; ++repeat) check_resize(steps, repeat % 2);
  });
}

TEST(colours_of_bytes_are_the_definition_on_every_instruction_set) {
  for_each_steps([](const StepTable& steps) {
    for (int repeat = 0; repeat < 60; ++repeat) check_colour(steps, repeat % 3 == 0);
  });
}

TEST(affine_maps_agree_between_instruction_sets_and_the_identity_is_exact) {
  for (int repeat = 0; repeat < 60; ++repeat) {
    Picture<Byte> in(number(1, 30), number(1, 30), repeat % 4 ? 3 : 1, false, repeat % 2);
    double m[6];
    for (double& v : m) v = double(number(-2000, 2000)) / 1000.0;
    const double same[6] = {1, 0, 0, 0, 1, 0};
    Picture<Byte> first(in.image.height, in.image.width, in.image.channels, false, false);
    step_table(cpu::available_isas().front().c_str())
        .affine_bytes(in.image, first.image, m, repeat % 3, 9);
    for_each_steps([&](const StepTable& steps) {
      Picture<Byte> out = first;
      out.image.data = out.values.data() + (first.image.data - first.values.data());
      steps.affine_bytes(in.image, out.image, m, repeat % 3, 9);
      EXPECT(out.values == first.values);
      steps.affine_bytes(in.image, out.image, same, true, 9);
      bool equal = true;
      for (std::int64_t y = 0; y < in.image.height; ++y) {
        for (std::int64_t x = 0; x < in.image.width; ++x)
          equal &= out.at(y, x, 0) == in.at(y, x, 0);
      }
      EXPECT(equal);
    });
  }
}
