// Runs blocks one after the other in this thread. Each thread of a block runs on a small stack of
// its own (a fiber) until it reaches a barrier or ends; then the next one runs. Code that works
// only in one order of the threads fails under another order.
#undef _FORTIFY_SOURCE  // its longjmp stays on one stack
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda_runtime.h"
#include "watch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace cuda_on_cpu {
namespace {

constexpr std::size_t kStack = 128 << 10;
constexpr std::size_t kSharedMost = 48 << 10;  // limit of a kernel that does not request more
constexpr std::size_t kSharedAll = 227 << 10;  // limit per block on sm_90
constexpr std::size_t kGuard = 64;             // guard bytes behind each shared memory allocation
constexpr unsigned char kNan = 0xff;
constexpr std::uint32_t kGuardWord = 0xfffafafa;  // a NaN that no kernel computes
constexpr unsigned kWarp = 32;

enum class State { kNew, kReady, kAtBarrier, kAtWarpBarrier, kDone };

struct Fiber {
  ucontext_t context = {};  // where the fiber starts
  jmp_buf at;               // where the fiber waits
  bool begun = false;
  std::unique_ptr<char[]> stack{new char[kStack]};
  void* fake_stack = nullptr;  // the address sanitizer's
};

struct Thread {
  State state;
  int line;  // of the barrier at which it waits
  Fiber* fiber;
  std::size_t shared;  // offset of its next shared memory allocation
  std::size_t asked;   // bytes allocated so far, without dynamic ones
  unsigned exchanges;  // number so far
  unsigned groups;     // groups of copies committed so far
};

struct LateCopy {
  void* to;
  const void* from;  // null copies zeros
  std::size_t bytes;
  unsigned group;
};

struct Warp {
  unsigned arrived = 0, mask = 0;
  int line = 0;
  std::uint64_t values[2][kWarp] = {};  // of this exchange and the previous one
};

struct Block {
  const std::function<void()>* kernel;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<std::vector<LateCopy>> copies;  // copies in flight, by thread
  std::vector<unsigned> order;
  unsigned next = 0, current = 0;  // position in the order; thread
  unsigned arrived = 0, done = 0;
  bool met = false;                                         // a warp's threads have just met
  std::vector<std::pair<std::size_t, std::size_t>> pieces;  // shared memory allocations: begin, end
};

Block block;
Order order = Order::kForward;
std::int64_t launched = 0;
std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Fiber*> idle;
constexpr std::size_t kAligned = 512;  // alignment that wgmma's matrices need
alignas(1024) unsigned char shared_bytes[kSharedAll + 64 * (kGuard + kAligned)];
std::size_t dynamic_shared = 0;  // bytes in this launch
std::string failure;             // error found by a thread; its block is aborted
std::exception_ptr thrown;       // by a kernel, e.g. the course's empty block

unsigned char guard_byte(std::size_t place) {
  return static_cast<unsigned char>(kGuardWord >> place % 4 * 8);
}

[[noreturn]] void fail(const std::string& message) {
  throw std::runtime_error("cuda_on_cpu: " + message);
}

// ---- switching: swapcontext would make a system call for the signal mask each time; the address
// sanitizer does not support longjmp from one stack to another ----

#ifdef __SANITIZE_ADDRESS__
ucontext_t scheduler;
void* scheduler_fake = nullptr;
const void* scheduler_stack = nullptr;
std::size_t scheduler_size = 0;
#else
jmp_buf scheduler_at;
#endif

void to_fiber(Fiber* fiber) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&scheduler_fake, fiber->stack.get(), kStack);
  swapcontext(&scheduler, &fiber->context);
  __sanitizer_finish_switch_fiber(scheduler_fake, nullptr, nullptr);
#else
  if (_setjmp(scheduler_at) != 0) return;
  if (fiber->begun) _longjmp(fiber->at, 1);
  fiber->begun = true;
  setcontext(&fiber->context);
#endif
}

void to_scheduler(Fiber* fiber) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&fiber->fake_stack, scheduler_stack, scheduler_size);
  swapcontext(&fiber->context, &scheduler);
  __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_stack, &scheduler_size);
#else
  if (_setjmp(fiber->at) == 0) _longjmp(scheduler_at, 1);
#endif
}

void enter(unsigned thread) {
  block.current = running.thread = thread;
  const dim3& size = blockDim;
  threadIdx = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

// A fiber runs new threads one after another as long as they end without waiting; then it is idle
// and can be reused.
void fiber_main(unsigned low, unsigned high) {
  auto* fiber = reinterpret_cast<Fiber*>((std::uintptr_t(high) << 32) | low);
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_size);
#endif
  for (;;) {
    while (block.next < block.order.size() &&
           block.threads[block.order[block.next]].state == State::kNew) {
      const unsigned mine = block.order[block.next++];
      enter(mine);
      block.threads[mine].fiber = fiber;
      try {
        (*block.kernel)();
      } catch (...) {  // must not leave this stack, which has no caller
        thrown = std::current_exception();
        failure = "a kernel threw an exception";
      }
      if (failure.empty() && !block.copies[mine].empty()) {
        failure = "thread " + std::to_string(mine) + " ended without waiting for the copies to " +
                  "shared memory that it had started";
      }
      if (!failure.empty()) break;
      block.threads[mine].state = State::kDone;
      ++block.done;
    }
    idle.push_back(fiber);
    to_scheduler(fiber);
  }
}

Fiber* new_fiber() {
  fibers.push_back(std::make_unique<Fiber>());
  Fiber* fiber = fibers.back().get();
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack.get();
  fiber->context.uc_stack.ss_size = kStack;
  const auto address = reinterpret_cast<std::uintptr_t>(fiber);
  makecontext(&fiber->context, reinterpret_cast<void (*)()>(fiber_main), 2,
              static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
  return fiber;
}

Fiber* take_fiber() {
  if (idle.empty()) return new_fiber();
  Fiber* fiber = idle.back();
  idle.pop_back();
  return fiber;
}

// ---- one block ----

std::string waiting_threads() {
  std::string text;
  int shown = 0;
  for (unsigned t = 0; t < block.threads.size() && shown < 4; ++t) {
    const Thread& thread = block.threads[t];
    if (thread.state != State::kAtBarrier && thread.state != State::kAtWarpBarrier) continue;
    text += (text.empty() ? "thread " : ", thread ") + std::to_string(t) + " in line " +
            std::to_string(thread.line);
    ++shown;
  }
  return text;
}

// Visits the threads in order, runs each until it waits or ends, and repeats until all have ended.
// Unless the order is forward, a warp whose threads have all arrived continues at once, so warps
// run ahead of each other as far as barriers permit.
void run_threads() {
  while (block.done < block.threads.size()) {
    bool moved = false;
    for (block.next = 0; block.next < block.order.size();) {
      const unsigned t = block.order[block.next];
      Thread& thread = block.threads[t];
      if (thread.state == State::kNew) {
        moved = true;
        to_fiber(take_fiber());  // advances the order itself
      } else {
        ++block.next;
        if (thread.state != State::kReady) continue;
        moved = true;
        enter(t);
        to_fiber(thread.fiber);
      }
      if (!failure.empty()) return;
      if (std::exchange(block.met, false) && order != Order::kForward) block.next = 0;
    }
    if (!moved) {
      failure = "some threads of a block wait at a barrier that others never reach: " +
                waiting_threads() + "; " + std::to_string(block.done) + " threads have ended";
      return;
    }
  }
}

void check_shared() {
  for (const auto& [begin, end] : block.pieces) {
    for (std::size_t i = end; i < end + kGuard; ++i) {
      if (shared_bytes[i] != guard_byte(i) && failure.empty()) {
        failure = "a kernel wrote behind its shared memory of " + std::to_string(end - begin) +
                  " bytes (byte " + std::to_string(i - begin) + ")";
      }
    }
  }
}

// Under the address sanitizer shared memory that no thread has allocated is poisoned, for loads
// too.
#ifdef __SANITIZE_ADDRESS__
void close_shared(std::size_t begin, std::size_t bytes) {
  __asan_poison_memory_region(shared_bytes + begin, bytes);
}
void open_shared(std::size_t begin, std::size_t bytes) {
  __asan_unpoison_memory_region(shared_bytes + begin, bytes);
}
#else
void close_shared(std::size_t, std::size_t) {}
void open_shared(std::size_t, std::size_t) {}
#endif

void arrive(const LateCopy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

void run_block(unsigned count, const std::vector<unsigned>& sequence) {
  block.threads.assign(count, Thread{State::kNew, 0, nullptr, 0, 0, 0, 0});
  block.warps.assign((count + kWarp - 1) / kWarp, Warp{});
  block.order = sequence;
  block.arrived = block.done = 0;
  block.met = false;
  running.epoch = 0;
  std::fill(std::begin(running.warp_epochs), std::end(running.warp_epochs), 0u);
  block.pieces.clear();
  if (block.copies.size() < count) block.copies.resize(count);
  for (auto& copies : block.copies) copies.clear();
  close_shared(0, sizeof shared_bytes);
  run_threads();
  open_shared(0, sizeof shared_bytes);
  end_block();
  const std::string missing = end_sm90();
  if (failure.empty()) failure = missing;
  if (failure.empty()) check_shared();
  if (failure.empty()) return;
  running.watched = false;
  idle.clear();  // fibers of waiting threads hold stacks that will never resume
  fibers.clear();
  const std::string message = std::exchange(failure, "");
  if (thrown != nullptr) std::rethrow_exception(std::exchange(thrown, nullptr));
  fail(message);
}

void wait(State state, int line) {
  Thread& me = block.threads[block.current];
  me.state = state;
  me.line = line;
  to_scheduler(me.fiber);
}

}  // namespace

[[noreturn]] void give_up(const std::string& message) {
  if (failure.empty()) failure = message;
  for (;;) to_scheduler(block.threads[block.current].fiber);
}

bool in_shared(const void* at) {
  const auto* const byte = static_cast<const unsigned char*>(at);
  return byte >= shared_bytes && byte < shared_bytes + sizeof shared_bytes;
}

void let_others_run() { wait(State::kReady, 0); }

void block_barrier(int line) {
  if (++block.arrived == block.threads.size()) {
    for (Thread& thread : block.threads) {
      if (thread.state == State::kAtBarrier && thread.line != line) {
        give_up("threads of one block wait at the barriers of lines " +
                std::to_string(thread.line) + " and " + std::to_string(line));
      }
      if (thread.state == State::kAtBarrier) thread.state = State::kReady;
    }
    block.arrived = 0;
    ++running.epoch;
    return wait(State::kReady, line);
  }
  wait(State::kAtBarrier, line);
}

int lane() { return static_cast<int>(block.current % kWarp); }

// `orders`: whether the function also orders memory; of the warp functions only __syncwarp does.
static void meet(unsigned mask, int line, bool orders) {
  const unsigned first = block.current / kWarp * kWarp;
  const unsigned size = std::min<unsigned>(kWarp, block.threads.size() - first);
  const unsigned all = size == kWarp ? ~0u : (1u << size) - 1;
  mask &= all;
  Warp& warp = block.warps[block.current / kWarp];
  const unsigned mine = 1u << lane();
  if ((mask & mine) == 0) give_up("a thread calls a warp function whose mask leaves it out");
  if (warp.arrived == 0) warp.mask = mask, warp.line = line;
  if (warp.mask != mask || warp.line != line) {
    give_up("threads of one warp meet in lines " + std::to_string(warp.line) + " and " +
            std::to_string(line) + ", or with different masks");
  }
  warp.arrived |= mine;
  if (warp.arrived == mask) {
    if (orders) ++running.warp_epochs[block.current / kWarp];
    for (unsigned t = first; t < first + size; ++t) {
      if (block.threads[t].state == State::kAtWarpBarrier) block.threads[t].state = State::kReady;
    }
    warp.arrived = 0;
    block.met = true;
    return wait(State::kReady, line);
  }
  wait(State::kAtWarpBarrier, line);
}

void warp_barrier(unsigned mask, int line) { meet(mask, line, true); }

std::uint64_t exchange(unsigned mask, std::uint64_t value, int from, int line) {
  Warp& warp = block.warps[block.current / kWarp];
  const unsigned slot = block.threads[block.current].exchanges++ % 2;
  warp.values[slot][lane()] = value;
  meet(mask, line, false);
  if (from < 0 || from >= int(kWarp) || (mask >> from & 1) == 0) return value;
  return warp.values[slot][from];
}

unsigned ballot(unsigned mask, bool vote, int line) {
  Warp& warp = block.warps[block.current / kWarp];
  const unsigned slot = block.threads[block.current].exchanges++ % 2;
  warp.values[slot][lane()] = vote;
  meet(mask, line, false);
  const unsigned size =
      std::min<unsigned>(kWarp, block.threads.size() - block.current / kWarp * kWarp);
  unsigned votes = 0;
  for (unsigned i = 0; i < size; ++i)
    votes |= (mask >> i & 1) && warp.values[slot][i] ? 1u << i : 0;
  return votes;
}

std::array<std::uint64_t, 32> exchange_all(std::uint64_t value, int line) {
  Warp& warp = block.warps[block.current / kWarp];
  const unsigned slot = block.threads[block.current].exchanges++ % 2;
  warp.values[slot][lane()] = value;
  meet(~0u, line, false);
  std::array<std::uint64_t, 32> all;
  std::copy_n(warp.values[slot], 32, all.begin());
  return all;
}

void* shared_memory(std::size_t bytes, bool dynamic) {
  Thread& me = block.threads[block.current];
  if (!dynamic) me.asked += bytes;
  if (me.asked > kSharedMost || (dynamic && bytes > dynamic_shared)) {
    give_up("a kernel asks for more shared memory than there is");
  }
  const std::size_t begin = me.shared, end = begin + bytes;
  me.shared = (end + kGuard + kAligned - 1) / kAligned * kAligned;
  const auto known = std::find(block.pieces.begin(), block.pieces.end(), std::pair{begin, end});
  if (known == block.pieces.end()) {
    if (!block.pieces.empty() && begin < block.pieces.back().second) {
      give_up("the threads of a block ask for different pieces of shared memory");
    }
    block.pieces.emplace_back(begin, end);
    open_shared(begin, bytes + kGuard);
    std::memset(shared_bytes + begin, kNan, bytes);
    for (std::size_t i = end; i < end + kGuard; ++i) shared_bytes[i] = guard_byte(i);
    close_shared(end, kGuard);
  }
  return shared_bytes + begin;
}

// Whether the `count`-th asynchronous operation of the thread completes at once instead of at its
// wait.
bool comes_early(std::size_t count) {
  return order == Order::kReversed ||
         (order == Order::kShuffled && (block.current + count) % 2 == 0);
}

void cp_async(void* to, const void* from, std::size_t bytes) {
  const auto places = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if ((bytes != 4 && bytes != 8 && bytes != 16) || places % bytes != 0) {
    give_up("cp.async copies 4, 8 or 16 bytes from and to multiples of as many, not " +
            std::to_string(bytes) + " between such places");
  }
  see(Access::kRead, from, bytes, __builtin_return_address(0));
  see(Access::kCopy, to, bytes, __builtin_return_address(0));
  auto& copies = block.copies[block.current];
  copies.push_back({to, from, bytes, block.threads[block.current].groups});
  if (comes_early(copies.size())) arrive(copies.back());
}

void cp_async_commit() { ++block.threads[block.current].groups; }

void cp_async_wait(unsigned open) {
  auto& copies = block.copies[block.current];
  const unsigned groups = block.threads[block.current].groups;
  std::size_t landed = 0;
  for (; landed < copies.size() && copies[landed].group + open < groups; ++landed) {
    const LateCopy& copy = copies[landed];
    arrive(copy);
    see(Access::kLanded, copy.to, copy.bytes, __builtin_return_address(0));
  }
  copies.erase(copies.begin(), copies.begin() + std::ptrdiff_t(landed));
}

int warp() { return static_cast<int>(block.current / kWarp); }

std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(static_cast<const unsigned char*>(pointer) - shared_bytes);
}
unsigned char* shared_at(std::uint32_t address) { return shared_bytes + address; }

void set_order(Order wanted) { order = wanted; }
std::int64_t launches() { return launched; }

void run_grid(dim3 blocks, dim3 threads, const std::function<void()>& kernel, const void* code,
              std::size_t dynamic) {
  const unsigned count = threads.x * threads.y * threads.z;
  const unsigned grid = blocks.x * blocks.y * blocks.z;
  if (count == 0 || count > 1024 || grid == 0 || blocks.y > 65535 || blocks.z > 65535) {
    fail("a grid of " + std::to_string(grid) + " blocks of " + std::to_string(count) +
         " threads cannot be launched");
  }
  if (dynamic > kSharedAll) fail("a block cannot have so much shared memory");
  ++launched;
  std::vector<unsigned> sequence(count), places(grid);
  std::iota(sequence.begin(), sequence.end(), 0u);
  std::iota(places.begin(), places.end(), 0u);
  std::mt19937 random(static_cast<unsigned>(launched));
  if (order != Order::kForward) std::reverse(places.begin(), places.end());
  if (order == Order::kReversed) std::reverse(sequence.begin(), sequence.end());
  const Turn turn;
  running.launch = static_cast<std::uint32_t>(launched);
  begin_watching(code);
  block.kernel = &kernel;
  dynamic_shared = dynamic;
  blockDim = threads;
  gridDim = blocks;
  for (const unsigned b : places) {
    if (order == Order::kShuffled) std::shuffle(sequence.begin(), sequence.end(), random);
    running.block = b;
    blockIdx = {b % blocks.x, b / blocks.x % blocks.y, b / blocks.x / blocks.y};
    run_block(count, sequence);
  }
  running.watched = false;
  check_guards();
}

}  // namespace cuda_on_cpu
