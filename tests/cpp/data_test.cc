// The C++ of the data module below the bindings: memory cached by threads, and programs that
// several threads run on every instruction set. tests/data compares values with NumPy.
#include <algorithm>
#include <cstdint>

#include "core/scratch.h"
#include "core/thread_pool.h"
#include "data/program.h"
#include "data/select.h"
#include "expect.h"

using namespace needle;
using namespace needle::data;
using namespace needle::testing;

TEST(pieces_of_thread_scratch_do_not_overlap) {
  for (int round = 0; round < 3; ++round) {
    const ThreadScratch a(1000);
    std::fill_n(a.as<char>(), 1000, char(1));
    void* inner = nullptr;
    {
      const ThreadScratch b(std::size_t{1} << 20), none(0);
      std::fill_n(b.as<char>(), 1 << 20, char(2));
      inner = b.as<void>();
      EXPECT(none.as<char>() != b.as<char>());
      EXPECT(reinterpret_cast<std::uintptr_t>(inner) % 64 == 0);
    }
    const ThreadScratch c(500);
    std::fill_n(c.as<char>(), 500, char(3));
    EXPECT(std::all_of(a.as<char>(), a.as<char>() + 1000, [](char x) { return x == 1; }));
  }
  const void* first = nullptr;
  for (int round = 0; round < 4; ++round) {  // grown memory is not moved again
    const ThreadScratch kept((std::size_t{1} << 20) + 4096);
    if (round == 1) first = kept.as<void>();
    EXPECT(round < 1 || kept.as<void>() == first);
  }
  EXPECT_THROWS(ThreadScratch(~std::size_t{0}));
}

namespace {

// Crops, mirrors, scales and normalises 64 images of 7x19, channels first, on several threads.
std::vector<float> augmented(const std::vector<std::uint8_t>& pixels, const StepTable& table) {
  constexpr std::int64_t n = 64, height = 7, width = 19;
  std::vector<double> corners, flips;
  for (std::int64_t i = 0; i < n; ++i) {
    corners.push_back(double(i % 5 - 2)), corners.push_back(double(i % 9 - 4));
    flips.push_back(double(i % 2)), flips.push_back(double(i / 2 % 2));
  }
  const std::vector<StepCall> calls = {
      {"crop", {height, width, 3}, corners.data(), 2},
      {"flip", {}, flips.data(), 2},
      {"to_float", {}, nullptr, 0},
      {"normalize", {3, 0.5, 0.4, 0.3, 0.2, 0.3, 0.4}, nullptr, 0},
      {"permute", {2, 0, 1}, nullptr, 0},
  };
  const Program program(calls, 3, Element::kByte, {{3, height, width}, Element::kFloat}, &table);
  std::vector<float> out(n * 3 * height * width);
  parallel_for(n, 3, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const SourceImage image{
          pixels.data() + i * height * width * 3, height, width, 3, width * 3, 3, 1};
      program.run(image, i, out.data() + i * 3 * height * width);
    }
  });
  return out;
}

}  // namespace

TEST(programs_give_the_same_bits_on_every_instruction_set) {
  std::vector<std::uint8_t> pixels(64 * 7 * 19 * 3);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = std::uint8_t(i * 37 + i / 255);
  set_num_threads(4);
  std::vector<float> first;
  for (const std::string& isa : cpu::available_isas()) {
    const std::vector<float> out = augmented(pixels, step_table(isa.c_str()));
    if (first.empty()) first = out;
    EXPECT(out == first);
  }
  // Image 2: corner (0, -2), flipped vertically only, so that its last row comes first.
  const std::size_t at = 2 * 3 * 7 * 19;
  EXPECT(first[at] == (3.0f / 255.0f - 0.5f) / 0.2f);
  const float pixel = pixels[2 * 7 * 19 * 3 + 6 * 19 * 3];
  EXPECT(first[at + 2] == (pixel / 255.0f - 0.5f) / 0.2f);
}
