// The tile of a block on sm_90 with operands stored in bfloat16, brought by bulk copies (TMA). A
// thread asks for a box of 32 x 32 to 32 x 128 elements instead of 8; rows outside are zeros. The
// loop is that of tile_product (gemm.h), and warpgroups multiply as in warpgroup_tile.h.
#pragma once

#include "conv_windows.h"
#include "tensor_map.h"

namespace needle::cuda {
namespace {

// As many steps are on their way, less one, as fit beside a second block of the largest tile.
constexpr int kBulkPieces = 4;

template <class T, class Tile>
inline constexpr bool kTakesBulk = false;
template <class Tile>
  requires Tile::kWarpgroups
inline constexpr bool kTakesBulk<BFloat16, Tile> = true;

template <class Tile>
struct BulkMemory {
  RoundedPiece<Tile::kTileM> a[kBulkPieces];
  RoundedPiece<Tile::kTileN> b[kBulkPieces];
  Arrival arrivals[kBulkPieces];
};

// A box has rows of 32 elements: by depths a piece is one box, by lines one for each 32 lines.
// The interface of an operand:
//   kBy                             how its piece lies in shared memory
//   copy(to, line, k, arrival)      the box from `line` and the depth k on; what is beyond the
//   sides
//                                   of memory is zero
template <class Operand, int kLines>
inline constexpr int kBoxes = Operand::kBy == By::kDepths ? 1 : kLines / 32;

// A matrix, of which the map has lines and depths in the order of memory.
template <By kBy_>
struct BulkMatrix {
  static constexpr By kBy = kBy_;
  const TensorMap& map;

  __device__ void copy(void* to, int line, int k, Arrival& arrival) const {
    if constexpr (kBy == By::kDepths) copy_box(to, map, {k, line, 0, 0}, arrival);
    if constexpr (kBy == By::kLines) copy_box(to, map, {line, k, 0, 0}, arrival);
  }
};

// Weights: depths are channels of one tap after the other. The map has channels and lines in the
// order of memory, then the taps of a row, and rows.
template <By kBy_>
struct BulkFilters {
  static constexpr By kBy = kBy_;
  const TensorMap& map;
  const Taps& taps;

  __device__ void copy(void* to, int line, int k, Arrival& arrival) const {
    const Taps::At at = taps.at(std::uint32_t(k));
    const int channel = int(at.channel);
    if constexpr (kBy == By::kDepths) copy_box(to, map, {channel, line, at.j, at.i}, arrival);
    if constexpr (kBy == By::kLines) copy_box(to, map, {line, channel, at.j, at.i}, arrival);
  }
};

// Windows of images. By depths lines are windows, depths channels of taps (convolutions); by lines
// it is the other way round (weight gradients).
struct WindowPlaces {
  WindowGrid grid;  // of the tap nearest to the first pixel
  Taps taps;
  int nearest_y, nearest_x;  // the distance of that tap from the first one, 0 or less
};
template <By kBy_>
struct BulkWindows {
  static constexpr By kBy = kBy_;
  const TensorMap& map;
  const WindowPlaces& places;

  __device__ void copy(void* to, int line, int k, Arrival& arrival) const {
    const auto& [grid, taps, nearest_y, nearest_x] = places;
    const auto window = std::uint32_t(kBy == By::kDepths ? line : k);
    const auto number = std::uint32_t(kBy == By::kDepths ? k : line);
    const Taps::At tap = taps.at(number < taps.depth ? number : 0);  // no line beyond is stored
    const Pixel pixel = grid.pixels.at(window);
    const int y = int(pixel.row) * grid.stride_y + grid.first_y;
    const int x = int(pixel.column) * grid.stride_x + grid.first_x;
    copy_windows(to, map, {int(tap.channel), x, y, int(pixel.image)},
                 {tap.j * taps.step_x - nearest_x, tap.i * taps.step_y - nearest_y}, arrival);
  }
};

// As tile_product; a and b are operands as above. `end` - `begin` is a multiple of 32, or memory
// ends at `end`.
template <class Tile, class A, class B, class Result>
__device__ void bulk_product(const A& a, const B& b, std::uint32_t row, std::uint32_t column,
                             std::uint32_t begin, std::uint32_t end, const Result& result) {
  if constexpr (Tile::kRuns) {
    NEEDLE_DYNAMIC_SHARED(memory, BulkMemory<Tile>);
    typename Tile::template Part<BFloat16, A::kBy, B::kBy> part;
    constexpr int kAhead = kBulkPieces - 1;
    // The first lane of each warp asks for a box, or more.
    const auto start = [&](std::uint32_t k, int place) {
      constexpr int kOfA = kBoxes<A, Tile::kTileM>, kOfB = kBoxes<B, Tile::kTileN>;
      constexpr int kBox = 32 * RoundedPiece<32>::kRow;  // elements, by lines
      if (threadIdx.x % kWarp != 0 || k >= end) return;
      Arrival& arrival = memory.arrivals[place];
      if (threadIdx.x == 0) expect_bytes(arrival, sizeof memory.a[0] + sizeof memory.b[0]);
#pragma unroll 1
      for (int i = int(threadIdx.x) / kWarp; i < kOfA + kOfB; i += Tile::kThreads / kWarp) {
        if (i < kOfA) {
          a.copy(&memory.a[place].of[i * kBox], int(row) + 32 * i, int(k), arrival);
        } else {
          const int j = i - kOfA;
          b.copy(&memory.b[place].of[j * kBox], int(column) + 32 * j, int(k), arrival);
        }
      }
    };
    if (threadIdx.x == 0) {
      for (Arrival& arrival : memory.arrivals) begin_arrivals(arrival);
      show_to_warpgroups();
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kAhead; ++i) start(begin + i * Tile::kStep, i);
    std::uint32_t parity = 0;
    for (std::uint32_t first = begin; first < end; first += kBulkPieces * Tile::kStep) {
#pragma unroll
      for (int present = 0; present < kBulkPieces; ++present) {
        const std::uint32_t k = first + present * Tile::kStep;
        if (k >= end) break;
        wait_for_bytes(memory.arrivals[present], parity);
        wait_for_products();
        __syncthreads();
        start(k + kAhead * Tile::kStep, (present + kAhead) % kBulkPieces);
        part.add(memory.a[present], memory.b[present]);
      }
      parity ^= 1;
    }
    wait_for_products();
    store(part, result, row, column);
    if constexpr (requires { result.finish(part, row, column); }) result.finish(part, row, column);
  }
}

// The map of the taps of windows in images (N, H, W, C), and their places. A step of 32 channels
// has one tap, and taps reach at most 255 pixels. No value if that does not suit.
template <class T>
std::optional<TensorMap> map_of_windows(const Image<const T>& image, const WindowGrid& grid,
                                        const Taps& taps, std::uint32_t pixels,
                                        WindowPlaces& places) {
  const std::int64_t channels = taps.channels.divisor;
  const std::int64_t rows = grid.pixels.rows.divisor, columns = grid.pixels.columns.divisor;
  const std::int64_t reach_y = taps.step_y * (taps.rows() - 1);
  const std::int64_t reach_x = taps.step_x * (std::int64_t(taps.columns.divisor) - 1);
  if (channels % 32 != 0 || std::max(std::abs(reach_y), std::abs(reach_x)) > 255) return {};
  places.nearest_y = int(std::min<std::int64_t>(0, reach_y));
  places.nearest_x = int(std::min<std::int64_t>(0, reach_x));
  places.grid.first_y += places.nearest_y;
  places.grid.first_x += places.nearest_x;
  return window_map(image.data,
                    {{channels, image.channel},
                     {image.width, image.column},
                     {image.height, image.row},
                     {grid.pixels.size / (rows * columns), image.image}},
                    {places.grid.first_x, grid.stride_x, columns},
                    {places.grid.first_y, grid.stride_y, rows}, pixels);
}

}  // namespace
}  // namespace needle::cuda
