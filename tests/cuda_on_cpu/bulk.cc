// Bulk copies of sm_90 (TMA) on the CPU: the driver's descriptors of tensors, copies of boxes, and
// mbarriers that count the bytes that have come. Where an element of a box lies in the tensor and
// in shared memory is written as in the PTX ISA, "Tensors", "Im2col mode" and "Swizzling modes".
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
constexpr int kSwizzled = 64;     // bytes of a row in which parts of 16 bytes change places
constexpr int kMostPolls = 1000;  // turns of all threads without anything that comes

struct Row {
  const char* from;   // the first element
  std::size_t bytes;  // inside the tensor; zeros follow
};

struct Box {
  unsigned char* to;
  void* arrival;
  std::size_t row_bytes;
  std::vector<Row> rows;
  bool come = false;
};
std::vector<Box> boxes;  // of the block, until a wait for them has ended
std::int64_t started = 0;

// Who began an mbarrier of the block, and after how many barriers.
struct Begun {
  std::uint32_t thread, epoch;
};
std::map<const void*, Begun> begun;

// The 8 bytes of an mbarrier of one thread.
struct Phase {
  std::int32_t missing;  // bytes; below 0 if some came before they were expected
  std::uint16_t number, expected;
};
static_assert(sizeof(Phase) == 8);

void see_arrival(Access access, const void* at) {
  see(access, at, sizeof(Phase), __builtin_return_address(0));
}

Phase& phase_at(void* arrival) {
  const auto found = begun.find(arrival);
  if (found == begun.end()) give_up("an mbarrier that nobody has begun");
  const auto& [thread, epoch] = found->second;
  if (thread != running.thread && epoch == running.epoch) {
    give_up("an mbarrier without a barrier after its begin by thread " + std::to_string(thread));
  }
  return *static_cast<Phase*>(arrival);
}

void end_if_complete(Phase& phase) {
  if (phase.expected == 0 || phase.missing > 0) return;
  if (phase.missing < 0) give_up("more bytes came to an mbarrier than its thread expected");
  phase.expected = 0;
  ++phase.number;
}

void come(Box& box) {
  std::size_t place = 0;  // from a multiple of 512 on, as rows change places
  for (const Row& row : box.rows) {
    for (std::size_t i = 0; i < box.row_bytes; ++i, ++place) {
      const std::size_t part = place >> 7 & (kSwizzled / 16 - 1);
      box.to[place ^ part << 4] = i < row.bytes ? static_cast<unsigned char>(row.from[i]) : 0;
    }
  }
  box.come = true;
  Phase& phase = phase_at(box.arrival);
  phase.missing -= static_cast<std::int32_t>(place);
  end_if_complete(phase);
}

void start(Box box) {
  const auto bytes = box.rows.size() * box.row_bytes;
  const auto place = reinterpret_cast<std::uintptr_t>(box.to);
  if (!in_shared(box.to) || place % 512 != 0) {
    give_up("a bulk copy with 64-byte swizzling goes to multiples of 512 bytes in shared memory");
  }
  phase_at(box.arrival);
  ++started;
  for (const Row& row : box.rows) {
    see(Access::kRead, row.from, row.bytes, __builtin_return_address(0));
  }
  see(Access::kCopy, box.to, bytes, __builtin_return_address(0));
  boxes.push_back(std::move(box));
  if (comes_early(boxes.size())) come(boxes.back());
}

// The row of a box that begins at an element.
Row row_at(const CUtensorMap& map, const std::int64_t (&at)[4]) {
  const char* from = map.data;
  for (int i = 0; i < 4; ++i) {
    if (at[i] < 0 || at[i] >= std::int64_t(map.sizes[i])) return {nullptr, 0};
    from += at[i] * std::int64_t(map.strides[i]);
  }
  const auto inside = std::min<std::int64_t>(map.box[0], std::int64_t(map.sizes[0]) - at[0]);
  return {from, std::size_t(inside) * kElement};
}

}  // namespace

void begin_arrivals(void* arrival) {
  see_arrival(Access::kWrite, arrival);
  *static_cast<Phase*>(arrival) = {0, 0, 0};
  begun[arrival] = {running.thread, running.epoch};
}

void expect_bytes(void* arrival, std::uint32_t bytes) {
  see_arrival(Access::kAtomic, arrival);
  Phase& phase = phase_at(arrival);
  if (phase.expected != 0) give_up("a thread arrives twice in one phase of an mbarrier");
  phase.expected = 1;
  phase.missing += static_cast<std::int32_t>(bytes);
  end_if_complete(phase);
}

void wait_for_bytes(void* arrival, std::uint32_t parity) {
  see_arrival(Access::kAtomic, arrival);
  const Phase& phase = phase_at(arrival);
  for (int polls = 0; phase.number % 2 == parity; ++polls) {
    if (phase.expected != 0) {  // now all is late enough
      for (Box& box : boxes) {
        if (box.arrival == arrival && !box.come) come(box);
      }
    }
    if (phase.number % 2 != parity) break;
    if (polls > kMostPolls) give_up("a thread waits for bytes at an mbarrier, and no more come");
    let_others_run();
  }
  for (std::size_t i = 0; i < boxes.size();) {
    if (boxes[i].arrival != arrival || !boxes[i].come) {
      ++i;
      continue;
    }
    const Box box = std::move(boxes[i]);
    boxes.erase(boxes.begin() + std::ptrdiff_t(i));
    see(Access::kDelivered, box.to, box.rows.size() * box.row_bytes, __builtin_return_address(0));
  }
}

void copy_box(void* to, const CUtensorMap& map, const int (&at)[4], void* arrival) {
  if (map.windows) give_up("a copy of a box with the map of windows");
  Box box{static_cast<unsigned char*>(to), arrival, std::size_t(map.box[0]) * kElement, {}};
  for (int l = 0; l < map.box[3]; ++l) {
    for (int k = 0; k < map.box[2]; ++k) {
      for (int j = 0; j < map.box[1]; ++j) {
        box.rows.push_back(row_at(map, {at[0], at[1] + j, at[2] + k, at[3] + l}));
      }
    }
  }
  start(std::move(box));
}

void copy_windows(void* to, const CUtensorMap& map, const int (&at)[4], const int (&tap)[2],
                  void* arrival) {
  if (!map.windows) give_up("a copy of windows with the map of boxes");
  for (const int offset : tap) {
    if (offset < 0 || offset > 255) give_up("im2col offsets of four axes are 0 to 255");
  }
  Box box{static_cast<unsigned char*>(to), arrival, std::size_t(map.box[0]) * kElement, {}};
  // Pixels from `at` on, in the box between the corners; at its end the next row begins, or image.
  std::int64_t w = at[1], h = at[2], n = at[3];
  const std::int64_t last_w = std::int64_t(map.sizes[1]) - 1 + map.high[0];
  const std::int64_t last_h = std::int64_t(map.sizes[2]) - 1 + map.high[1];
  for (int pixel = 0; pixel < map.box[1]; ++pixel) {
    box.rows.push_back(row_at(map, {at[0], w + tap[0], h + tap[1], n}));
    w += map.every[1];
    if (w <= last_w) continue;
    w = map.low[0];
    h += map.every[2];
    if (h <= last_h) continue;
    h = map.low[1];
    ++n;
  }
  start(std::move(box));
}

std::int64_t bulk_copies() { return started; }

std::string end_bulk_copies() {
  const bool open = !boxes.empty();
  boxes.clear();
  begun.clear();
  return open ? "a block ended before the bulk copies that it had started were waited for" : "";
}

}  // namespace cuda_on_cpu

namespace {

// Fills in what both kinds of maps have; false if the driver would refuse it.
bool describe(CUtensorMap* map, cuuint32_t rank, void* data, const cuuint64_t* sizes,
              const cuuint64_t* strides, const cuuint32_t* every) {
  *map = {};
  map->data = static_cast<const char*>(data);
  bool fits = rank == 4 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  for (cuuint32_t i = 0; i < rank && i < 4; ++i) {
    map->sizes[i] = sizes[i];
    map->strides[i] = i == 0 ? std::uint64_t(cuda_on_cpu::kElement) : strides[i - 1];
    map->every[i] = static_cast<std::uint8_t>(every[i]);
    fits = fits && sizes[i] >= 1 && sizes[i] <= std::uint64_t(1) << 32 && every[i] >= 1 &&
           every[i] <= 8;
    if (i > 0) fits = fits && strides[i - 1] % 16 == 0 && strides[i - 1] < std::uint64_t(1) << 40;
  }
  return fits;
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank, void* data,
                                const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* every,
                                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  bool fits = describe(map, rank, data, sizes, strides, every);
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
                                 const cuuint32_t* every, CUtensorMapInterleave, CUtensorMapSwizzle,
                                 CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  bool fits = describe(map, rank, data, sizes, strides, every);
  fits = fits && channels >= 1 && pixels >= 1 && pixels <= 1024 &&
         channels * cuda_on_cpu::kElement <= unsigned(cuda_on_cpu::kSwizzled);
  map->box[0] = static_cast<std::uint16_t>(channels);
  map->box[1] = static_cast<std::uint16_t>(pixels);
  map->windows = true;
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
