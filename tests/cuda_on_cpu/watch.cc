// Observes every access of a kernel to shared and device memory. Kernels are compiled with
// -fsanitize=thread and linked without its library, so the compiler calls the functions at the end
// of this file before each access. A shadow of each word records its last writer and reader and the
// number of barriers before them: accesses by two threads with no barrier between them are a race,
// in whatever order they ran. When accesses are counted, those of a warp at one source line give
// sectors of 32 bytes and shared memory wavefronts (turns of the banks).
#include "watch.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

namespace cuda_on_cpu {

Running running;

namespace {

bool racing = false, counting = false;

// ---- source lines ----

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char piece[512];
  while (std::fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
  pclose(pipe);
  return text;
}

// Reads "_ZN.. kernel", then "/path/gemm.h:12 (discriminator 3)", for each inlined function.
std::vector<std::string> frames(const void* code, bool before) {
  Dl_info found{};
  if (dladdr(const_cast<void*>(code), &found) == 0 || found.dli_fname == nullptr) return {};
  const auto place = reinterpret_cast<std::uintptr_t>(code) -
                     reinterpret_cast<std::uintptr_t>(found.dli_fbase) - (before ? 1 : 0);
  char command[1200];
  std::snprintf(command, sizeof command, "addr2line -C -f -i -e '%s' 0x%zx 2>/dev/null",
                found.dli_fname, static_cast<std::size_t>(place));
  std::vector<std::string> lines;
  const std::string text = output_of(command);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string short_place(std::string line) {
  line = line.substr(0, line.find(" ("));
  const std::size_t slash = line.rfind('/');
  return slash == std::string::npos ? line : line.substr(slash + 1);
}

// Returns "tensor_tile.h:41 < gemm.h:188": the line, and the lines of the calls that lead to it.
std::string place_of(const void* from) {
  std::string text;
  int shown = 0;
  const std::vector<std::string> lines = frames(from, true);
  for (std::size_t i = 1; i < lines.size() && shown < 3; i += 2) {
    const std::string place = short_place(lines[i]);
    if (place.starts_with("cuda_runtime.h") || place.starts_with("?")) continue;
    text += (shown++ == 0 ? "" : " < ") + place;
  }
  if (text.empty()) return "an unknown line (addr2line or -g is missing)";
  return text;
}

std::string name_of(const void* kernel) {
  const std::vector<std::string> lines = frames(kernel, false);
  if (lines.empty()) return "?";
  constexpr std::string_view kNoName = "(anonymous namespace)::";
  std::string name = lines[0];
  for (auto at = name.find(kNoName); at != name.npos; at = name.find(kNoName)) {
    name.erase(at, kNoName.size());
  }
  name = name.substr(0, name.find_first_of("<("));
  if (name.starts_with("void ")) name = name.substr(5);
  const std::size_t colon = name.rfind("::");
  return colon == std::string::npos ? name : name.substr(colon + 2);
}

// ---- races ----

// Blocks are ordered by a fence, an atomic operation, one of another block at the same address, and
// a fence there. Each end is a thread with the number of barriers its block had passed.
struct Point {
  std::uint32_t epoch = 0, thread = 0;
};
using Points = std::map<std::uint32_t, Point>;  // by block
std::map<const void*, Points> published;        // published by atomic operations at an address
std::map<std::uint32_t, Point> fenced;          // by thread of the running block
std::map<std::uint32_t, Points> taken;          // acquired before the thread's next fence
std::map<std::uint32_t, std::pair<Point, Point>> ordered;  // by block: its point, then ours

void forget_block() {
  fenced.clear();
  taken.clear();
  ordered.clear();
}

void meet_in_atomic(const void* at) {
  Points& here = published[at];
  taken[running.thread].insert(here.begin(), here.end());
  const auto fence = fenced.find(running.thread);
  if (fence != fenced.end()) here[running.block] = fence->second;
}

// Whether an access of `block`, by `thread` in `epoch`, happens before the current one.
bool is_ordered(std::uint32_t block, std::uint32_t epoch, std::uint32_t thread) {
  const auto found = ordered.find(block);
  if (found == ordered.end()) return false;
  const auto& [theirs, ours] = found->second;
  return (epoch < theirs.epoch || (epoch == theirs.epoch && thread == theirs.thread)) &&
         (ours.epoch < running.epoch || ours.thread == running.thread);
}

struct Seen {
  std::uint32_t launch = 0, block = 0, epoch = 0, warp_epoch = 0, thread = 0;
  std::uint32_t fences = 0;  // proxy fences that the thread had passed
  bool atomic = false, in_flight = false, delivered = false, many_lanes = false, many_warps = false,
       many_blocks = false;
  const void* from = nullptr;

  // Whether no barrier lies between this access and the current one.
  bool races(bool shared) const {
    const Running& now = running;
    if (launch != now.launch) return false;
    if (block != now.block) {
      return !shared && (many_blocks || in_flight || !is_ordered(block, epoch, thread));
    }
    if (many_blocks || in_flight) return true;
    if (epoch != now.epoch) return false;
    if (many_warps || thread / 32 != now.thread / 32) return true;
    if (warp_epoch != now.warp_epochs[now.thread / 32]) return false;
    return many_lanes || thread != now.thread;
  }
};

struct Word {
  Seen write, read;
};

std::array<std::uint32_t, 1024> fences = {};  // proxy fences, by thread of a block

Seen now_seen(Access access, const void* from) {
  const Running& now = running;
  return {now.launch,
          now.block,
          now.epoch,
          now.warp_epochs[now.thread / 32],
          now.thread,
          fences[now.thread],
          access == Access::kAtomic,
          access == Access::kCopy,
          access == Access::kDelivered,
          false,
          false,
          false,
          from};
}

// One shadow for word accesses and one for shorter ones: neighbouring bytes may belong to different
// threads.
class Shadow {
 public:
  Word& at(std::uintptr_t number) {
    const std::uintptr_t page = number / kPage;
    if (page != last_ || words_ == nullptr) {
      auto& found = pages_[page];
      if (found == nullptr) found = std::make_unique<Page>();
      last_ = page;
      words_ = found.get();
    }
    return (*words_)[number % kPage];
  }
  void shrink() {
    if (pages_.size() < 4096) return;
    pages_.clear();
    words_ = nullptr;
  }

 private:
  static constexpr std::uintptr_t kPage = 1024;
  using Page = std::array<Word, kPage>;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::uintptr_t last_ = 0;
  Page* words_ = nullptr;
};
Shadow words, bytes_of_words;

const char* verb(Access access) {
  return access == Access::kRead || access == Access::kProduct ? " reads "
         : access == Access::kAtomic                           ? " adds to "
                                                               : " writes ";
}

[[noreturn]] void report(const Seen& before, std::string did, Access access, std::size_t bytes,
                         bool shared, const void* from) {
  const auto who = [](std::uint32_t thread, std::uint32_t block) {
    return "thread " + std::to_string(thread) + " of block " + std::to_string(block);
  };
  const char* ending = ", and no barrier is between";
  if (before.many_lanes || before.many_warps || before.many_blocks) did = " and others" + did;
  if (before.in_flight) did = " copies to", ending = " and has not waited for the copy";
  if (access == Access::kProduct) ending = ", and no fence.proxy.async followed";
  give_up("a race in " + std::string(shared ? "shared" : "device") +
          " memory: " + who(running.thread, running.block) + verb(access) + std::to_string(bytes) +
          " bytes in " + place_of(from) + ", which " + who(before.thread, before.block) + did +
          " in " + place_of(before.from) + ending);
}

void check(Word& word, Access access, std::size_t bytes, bool shared, const void* from) {
  if (access == Access::kProduct) {
    const Seen& write = word.write;
    const bool here = write.launch == running.launch && write.block == running.block;
    if (here && !write.delivered && fences[write.thread] == write.fences) {
      report(write, " wrote", access, bytes, shared, from);
    }
    access = Access::kRead;
  }
  const bool atomic = access == Access::kAtomic;
  const Seen mine = now_seen(access, from);
  if (access == Access::kLanded || access == Access::kDelivered) return void(word.write = mine);
  if (word.write.races(shared) && !(atomic && word.write.atomic)) {
    report(word.write, word.write.atomic ? " added to" : " wrote", access, bytes, shared, from);
  }
  if (access != Access::kRead) {
    if (word.read.races(shared)) report(word.read, " read", access, bytes, shared, from);
    word.write = mine;
    return;
  }
  const Seen before = std::exchange(word.read, mine);
  if (before.launch != mine.launch) return;
  word.read.many_blocks = !shared && (before.many_blocks || before.block != mine.block);
  if (!before.races(shared) || before.block != mine.block) return;
  word.read.many_warps = before.many_warps || before.thread / 32 != mine.thread / 32;
  word.read.many_lanes = before.many_lanes || before.thread != mine.thread;
}

void look_for_races(Access access, const void* at, std::size_t bytes, bool shared,
                    const void* from) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const bool whole = (address | bytes) % 4 == 0;
  const std::size_t step = whole ? 4 : 1;
  for (std::size_t i = 0; i < bytes; i += step) {
    Word& word = whole ? words.at((address + i) / 4) : bytes_of_words.at(address + i);
    check(word, access, bytes, shared, from);
  }
}

// ---- counts: the n-th executions of an instruction by the lanes of a warp are one access ----

struct Touch {
  std::uintptr_t at;
  std::uint32_t bytes;
};
struct Kind {
  const void *kernel, *from;
  bool shared, write;
  auto operator<=>(const Kind&) const = default;
};
struct Total {
  std::int64_t accesses = 0, parts = 0, least = 0;
};
std::map<Kind, Total> totals;
std::map<std::pair<Kind, std::uint32_t>, std::vector<std::vector<Touch>>> in_block;  // by warp
std::map<std::tuple<Kind, std::uint32_t>, std::size_t> times;                        // by thread
const void* kernel_now = nullptr;

void count(Access access, const void* at, std::size_t bytes, bool shared, const void* from) {
  const Kind kind{kernel_now, from, shared, access != Access::kRead};
  const std::size_t time = times[{kind, running.thread}]++;
  auto& turns = in_block[{kind, running.thread / 32}];
  if (turns.size() <= time) turns.resize(time + 1);
  turns[time].push_back({reinterpret_cast<std::uintptr_t>(at), std::uint32_t(bytes)});
}

template <std::uintptr_t kUnit>
std::vector<std::uintptr_t> units(const Touch* begin, const Touch* end) {
  std::vector<std::uintptr_t> found;
  for (; begin != end; ++begin) {
    for (auto unit = begin->at / kUnit; unit <= (begin->at + begin->bytes - 1) / kUnit; ++unit) {
      found.push_back(unit);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Adds the number of 32-byte sectors, and the minimum for these bytes.
void add_sectors(const std::vector<Touch>& lanes, Total& total) {
  const auto least = units<1>(lanes.data(), lanes.data() + lanes.size()).size();
  total.parts += std::int64_t(units<32>(lanes.data(), lanes.data() + lanes.size()).size());
  total.least += std::int64_t((least + 31) / 32);
}

// Each of 32 banks delivers one 4-byte word per turn. 8-byte accesses take two half-warps, 16-byte
// ones four quarter-warps.
void add_turns(const std::vector<Touch>& lanes, Total& total) {
  const std::size_t each = 32 / std::max<std::size_t>(1, lanes[0].bytes / 4);
  for (std::size_t first = 0; first < lanes.size(); first += each) {
    const Touch* const end = lanes.data() + std::min(first + each, lanes.size());
    int banks[32] = {}, most = 1;
    for (const std::uintptr_t word : units<4>(lanes.data() + first, end)) {
      most = std::max(most, ++banks[word % 32]);
    }
    total.parts += most;
    ++total.least;
  }
}

}  // namespace

// ---- functions for block.cc and the tests ----

void watch_races(bool on) { racing = on; }

void count_accesses(bool on) {
  counting = on;
  if (on) totals.clear();
}

std::vector<Counted> counted() {
  std::vector<Counted> rows;
  for (const auto& [kind, total] : totals) {
    rows.push_back({name_of(kind.kernel), place_of(kind.from), kind.shared, kind.write,
                    total.accesses, total.parts, total.least});
  }
  return rows;
}

std::string table_of_counts() {
  std::string table;
  char line[320];
  for (const Counted& row : counted()) {
    std::snprintf(line, sizeof line, "%s, %s: %s %s memory %lld times, %lld %s, %.1f x the least\n",
                  row.kernel.c_str(), row.place.c_str(), row.write ? "writes" : "reads",
                  row.shared ? "shared" : "device", static_cast<long long>(row.accesses),
                  static_cast<long long>(row.parts), row.shared ? "turns" : "sectors",
                  double(row.parts) / double(std::max<std::int64_t>(1, row.least)));
    table += line;
  }
  return table;
}

void begin_watching(const void* kernel) {
  kernel_now = kernel;
  published.clear();
  running.watched = racing || counting;
  words.shrink();
  bytes_of_words.shrink();
}

void end_block() {
  forget_block();
  for (const auto& [key, turns] : in_block) {
    Total& total = totals[key.first];
    for (const std::vector<Touch>& lanes : turns) {
      ++total.accesses;
      key.first.shared ? add_turns(lanes, total) : add_sectors(lanes, total);
    }
  }
  in_block.clear();
  times.clear();
}

void see(Access access, const void* at, std::size_t bytes, const void* from) {
  if (!running.watched || bytes == 0) return;
  const bool shared = in_shared(at);
  if (!shared && !in_device(at)) return;
  if (counting && access < Access::kLanded) count(access, at, bytes, shared, from);
  if (racing) look_for_races(access, at, bytes, shared, from);
}

void fence_proxy_async() { ++fences[running.thread]; }

void see_atomic(const void* at, std::size_t bytes, const void* from) {
  see(Access::kAtomic, at, bytes, from);
  if (running.watched && racing) meet_in_atomic(at);
}

void see_fence() {
  const Point now{running.epoch, running.thread};
  fenced[running.thread] = now;
  for (const auto& [block, theirs] : taken[running.thread]) {
    ordered.insert({block, {theirs, now}});
  }
}

}  // namespace cuda_on_cpu

// ---- functions that the compiler calls ----

#define NEEDLE_SEEN(kind, access, bytes)                                                   \
  extern "C" void __tsan_##kind##bytes(void* at) {                                         \
    cuda_on_cpu::see(cuda_on_cpu::Access::access, at, bytes, __builtin_return_address(0)); \
  }                                                                                        \
  extern "C" void __tsan_unaligned_##kind##bytes(void* at) {                               \
    cuda_on_cpu::see(cuda_on_cpu::Access::access, at, bytes, __builtin_return_address(0)); \
  }
#define NEEDLE_SEEN_ALL(bytes) NEEDLE_SEEN(read, kRead, bytes) NEEDLE_SEEN(write, kWrite, bytes)
NEEDLE_SEEN_ALL(1)
NEEDLE_SEEN_ALL(2)
NEEDLE_SEEN_ALL(4)
NEEDLE_SEEN_ALL(8)
NEEDLE_SEEN_ALL(16)

extern "C" void __tsan_read_range(void* at, std::size_t bytes) {
  cuda_on_cpu::see(cuda_on_cpu::Access::kRead, at, bytes, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* at, std::size_t bytes) {
  cuda_on_cpu::see(cuda_on_cpu::Access::kWrite, at, bytes, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void**, void*) {}
extern "C" void __tsan_vptr_read(void**) {}

// The compiler calls these in host functions of the same files.
#define NEEDLE_ATOMIC(bits, T)                                                                     \
  extern "C" T __tsan_atomic##bits##_load(const volatile T* at, int) {                             \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                                  \
  }                                                                                                \
  extern "C" void __tsan_atomic##bits##_store(volatile T* at, T value, int) {                      \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                                \
  extern "C" T __tsan_atomic##bits##_exchange(volatile T* at, T value, int) {                      \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                       \
  }                                                                                                \
  extern "C" T __tsan_atomic##bits##_fetch_add(volatile T* at, T value, int) {                     \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  extern "C" T __tsan_atomic##bits##_fetch_sub(volatile T* at, T value, int) {                     \
    return __atomic_fetch_sub(at, value, __ATOMIC_SEQ_CST);                                        \
  }                                                                                                \
  extern "C" int __tsan_atomic##bits##_compare_exchange_strong(volatile T* at, T* was, T value,    \
                                                               int, int) {                         \
    return __atomic_compare_exchange_n(at, was, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }                                                                                                \
  extern "C" int __tsan_atomic##bits##_compare_exchange_weak(volatile T* at, T* was, T value, int, \
                                                             int) {                                \
    return __atomic_compare_exchange_n(at, was, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
NEEDLE_ATOMIC(8, std::uint8_t)
NEEDLE_ATOMIC(32, std::uint32_t)
NEEDLE_ATOMIC(64, std::uint64_t)
extern "C" void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
