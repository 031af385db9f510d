// TMA of sm_90 on the CPU: the driver's tensor maps, loads of boxes, and mbarriers that count the
// bytes that have arrived. The positions of a box's elements in the tensor and in shared memory
// follow the PTX ISA, "Tensors", "Im2col mode" and "Swizzling modes".
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "watch.h"

namespace cuda_on_cpu {
namespace {

constexpr int kElement = 2;       // bytes
constexpr int kSwizzled = 64;     // bytes per row, whose 16-byte chunks are swizzled
constexpr int kMostPolls = 1000;  // rounds of all threads without an arrival

struct Row {
  const char* from;   // address of the first element
  std::size_t bytes;  // inside the tensor; the rest is zero
};

struct Box {
  unsigned char* to;
  void* mbarrier;
  std::size_t row_bytes;
  std::vector<Row> rows;
  bool come = false;
};
std::vector<Box> boxes;  // of the block, until a wait for it has ended
std::int64_t started = 0;

// The thread that initialised an mbarrier of the block, and the number of barriers passed before.
struct Initialised {
  std::uint32_t thread, epoch;
};
std::map<const void*, Initialised> initialised;

// The 8 bytes of an mbarrier with one arriving thread.
struct Phase {
  std::int32_t missing;  // bytes; negative if some arrived before they were expected
  std::uint16_t number, expected;
};
static_assert(sizeof(Phase) == 8);

void see_mbarrier(Access access, const void* mbarrier) {
  see(access, mbarrier, sizeof(Phase), __builtin_return_address(0));
}

Phase& phase_at(void* mbarrier) {
  const auto found = initialised.find(mbarrier);
  if (found == initialised.end()) give_up("an mbarrier that no thread has initialised");
  const auto& [thread, epoch] = found->second;
  if (thread != running.thread && epoch == running.epoch) {
    give_up("an mbarrier without a barrier after its initialisation by thread " +
            std::to_string(thread));
  }
  return *static_cast<Phase*>(mbarrier);
}

void end_if_complete(Phase& phase) {
  if (phase.expected == 0 || phase.missing > 0) return;
  if (phase.missing < 0) give_up("more bytes came to an mbarrier than its thread expected");
  phase.expected = 0;
  ++phase.number;
}

void come(Box& box) {
  std::size_t position = 0;  // aligned to 512, where the swizzle pattern starts
  for (const Row& row : box.rows) {
    for (std::size_t i = 0; i < box.row_bytes; ++i, ++position) {
      const std::size_t chunk = position >> 7 & (kSwizzled / 16 - 1);
      box.to[position ^ chunk << 4] = i < row.bytes ? static_cast<unsigned char>(row.from[i]) : 0;
    }
  }
  box.come = true;
  Phase& phase = phase_at(box.mbarrier);
  phase.missing -= static_cast<std::int32_t>(position);
  end_if_complete(phase);
}

void start(Box box) {
  const auto bytes = box.rows.size() * box.row_bytes;
  const auto place = reinterpret_cast<std::uintptr_t>(box.to);
  if (!in_shared(box.to) || place % 512 != 0) {
    give_up("a TMA load with 64-byte swizzle goes to multiples of 512 bytes in shared memory");
  }
  phase_at(box.mbarrier);
  ++started;
  for (const Row& row : box.rows) {
    see(Access::kRead, row.from, row.bytes, __builtin_return_address(0));
  }
  see(Access::kCopy, box.to, bytes, __builtin_return_address(0));
  boxes.push_back(std::move(box));
  if (comes_early(boxes.size())) come(boxes.back());
}

// Returns the row of a box that starts at an element.
Row row_at(const CUtensorMap& map, const std::int64_t (&coordinates)[4]) {
  const char* from = map.data;
  for (int i = 0; i < 4; ++i) {
    if (coordinates[i] < 0 || coordinates[i] >= std::int64_t(map.sizes[i])) return {nullptr, 0};
    from += coordinates[i] * std::int64_t(map.strides[i]);
  }
  const auto inside =
      std::min<std::int64_t>(map.box[0], std::int64_t(map.sizes[0]) - coordinates[0]);
  return {from, std::size_t(inside) * kElement};
}

}  // namespace

void mbarrier_init(void* mbarrier) {
  see_mbarrier(Access::kWrite, mbarrier);
  *static_cast<Phase*>(mbarrier) = {0, 0, 0};
  initialised[mbarrier] = {running.thread, running.epoch};
}

void mbarrier_expect_tx(void* mbarrier, std::uint32_t bytes) {
  see_mbarrier(Access::kAtomic, mbarrier);
  Phase& phase = phase_at(mbarrier);
  if (phase.expected != 0) give_up("a thread arrives twice in one phase of an mbarrier");
  phase.expected = 1;
  phase.missing += static_cast<std::int32_t>(bytes);
  end_if_complete(phase);
}

void mbarrier_wait(void* mbarrier, std::uint32_t parity) {
  see_mbarrier(Access::kAtomic, mbarrier);
  const Phase& phase = phase_at(mbarrier);
  for (int polls = 0; phase.number % 2 == parity; ++polls) {
    if (phase.expected != 0) {  // late arrivals come now
      for (Box& box : boxes) {
        if (box.mbarrier == mbarrier && !box.come) come(box);
      }
    }
    if (phase.number % 2 != parity) break;
    if (polls > kMostPolls) give_up("a thread waits for bytes at an mbarrier, and no more come");
    let_others_run();
  }
  for (std::size_t i = 0; i < boxes.size();) {
    if (boxes[i].mbarrier != mbarrier || !boxes[i].come) {
      ++i;
      continue;
    }
    const Box box = std::move(boxes[i]);
    boxes.erase(boxes.begin() + std::ptrdiff_t(i));
    see(Access::kDelivered, box.to, box.rows.size() * box.row_bytes, __builtin_return_address(0));
  }
}

void tma_load_tile(void* to, const CUtensorMap& map, const int (&coordinates)[4], void* mbarrier) {
  if (map.im2col) give_up("a tiled load with an im2col map");
  Box box{static_cast<unsigned char*>(to), mbarrier, std::size_t(map.box[0]) * kElement, {}};
  for (int l = 0; l < map.box[3]; ++l) {
    for (int k = 0; k < map.box[2]; ++k) {
      for (int j = 0; j < map.box[1]; ++j) {
        box.rows.push_back(row_at(
            map, {coordinates[0], coordinates[1] + j, coordinates[2] + k, coordinates[3] + l}));
      }
    }
  }
  start(std::move(box));
}

void tma_load_im2col(void* to, const CUtensorMap& map, const int (&coordinates)[4],
                     const int (&offsets)[2], void* mbarrier) {
  if (!map.im2col) give_up("an im2col load with a tiled map");
  for (const int offset : offsets) {
    if (offset < 0 || offset > 255) give_up("im2col offsets of four axes are 0 to 255");
  }
  Box box{static_cast<unsigned char*>(to), mbarrier, std::size_t(map.box[0]) * kElement, {}};
  // Window origins traverse the bounding box row by row, then that of the next image.
  std::int64_t w = coordinates[1], h = coordinates[2], n = coordinates[3];
  const std::int64_t last_w = std::int64_t(map.sizes[1]) - 1 + map.high[0];
  const std::int64_t last_h = std::int64_t(map.sizes[2]) - 1 + map.high[1];
  for (int pixel = 0; pixel < map.box[1]; ++pixel) {
    box.rows.push_back(row_at(map, {coordinates[0], w + offsets[0], h + offsets[1], n}));
    w += map.element_strides[1];
    if (w <= last_w) continue;
    w = map.low[0];
    h += map.element_strides[2];
    if (h <= last_h) continue;
    h = map.low[1];
    ++n;
  }
  start(std::move(box));
}

std::int64_t tma_loads() { return started; }

std::string end_sm90() {
  const bool open = !boxes.empty();
  boxes.clear();
  initialised.clear();
  end_wgmma();
  return open ? "a block ended before it had waited for its TMA loads" : "";
}

}  // namespace cuda_on_cpu

namespace {

// Fills in the fields common to both kinds of maps; returns false if the driver would reject it.
bool describe(CUtensorMap* map, cuuint32_t rank, void* data, const cuuint64_t* sizes,
              const cuuint64_t* strides, const cuuint32_t* element_strides) {
  *map = {};
  map->data = static_cast<const char*>(data);
  bool fits = rank == 4 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  for (cuuint32_t i = 0; i < rank && i < 4; ++i) {
    map->sizes[i] = sizes[i];
    map->strides[i] = i == 0 ? std::uint64_t(cuda_on_cpu::kElement) : strides[i - 1];
    map->element_strides[i] = static_cast<std::uint8_t>(element_strides[i]);
    fits = fits && sizes[i] >= 1 && sizes[i] <= std::uint64_t(1) << 32 && element_strides[i] >= 1 &&
           element_strides[i] <= 8;
    if (i > 0) fits = fits && strides[i - 1] % 16 == 0 && strides[i - 1] < std::uint64_t(1) << 40;
  }
  return fits;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  bool fits = describe(map, rank, data, sizes, strides, element_strides);
  for (cuuint32_t i = 0; fits && i < rank; ++i) {
    fits = box[i] >= 1 && box[i] <= 256;
    map->box[i] = static_cast<std::uint16_t>(box[i]);
  }
  fits = fits && box[0] * cuda_on_cpu::kElement <= unsigned(cuda_on_cpu::kSwizzled);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                 const cuuint64_t* sizes, const cuuint64_t* strides, const int* low,
                                 const int* high, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t* element_strides, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  bool fits = describe(map, rank, data, sizes, strides, element_strides);
  fits = fits && channels >= 1 && pixels >= 1 && pixels <= 1024 &&
         channels * cuda_on_cpu::kElement <= unsigned(cuda_on_cpu::kSwizzled);
  map->box[0] = static_cast<std::uint16_t>(channels);
  map->box[1] = static_cast<std::uint16_t>(pixels);
  map->im2col = true;
  for (int i = 0; i < 2; ++i) {
    fits = fits && -128 <= low[i] && low[i] <= 127 && -128 <= high[i] && high[i] <= 127;
    map->low[i] = static_cast<std::int16_t>(low[i]);
    map->high[i] = static_cast<std::int16_t>(high[i]);
  }
  return fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *result = cudaDriverEntryPointSuccess;
  *function = std::strcmp(name, "cuTensorMapEncodeTiled") == 0
                  ? reinterpret_cast<void*>(cuTensorMapEncodeTiled)
                  : reinterpret_cast<void*>(cuTensorMapEncodeIm2col);
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
