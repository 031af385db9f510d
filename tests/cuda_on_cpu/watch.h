// The running thread as block.cc reports it to watch.cc, and the functions of watch.cc for
// block.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

struct Running {
  std::uint32_t launch = 0, block = 0;  // indices
  std::uint32_t epoch = 0;              // barriers of the block so far
  std::uint32_t warp_epochs[32] = {};   // and of each warp
  std::uint32_t thread = 0;
  bool watched = false;  // accesses are observed
};
extern Running running;

void begin_watching(const void* kernel);  // starts a launch
void end_block();                         // completes the accesses of its warps
// Records an access of the running thread by the instruction before `from`, including those that
// the compiler does not report. kCopy starts an asynchronous write, kLanded completes it; kProduct
// is a read by wgmma, which sees writes before a proxy fence and data delivered by TMA.
enum class Access : std::uint8_t { kRead, kWrite, kAtomic, kCopy, kLanded, kDelivered, kProduct };
void see(Access access, const void* at, std::size_t bytes, const void* from);

// Defined in block.cc.
bool in_shared(const void* at);
void let_others_run();                // returns at the thread's next turn
bool comes_early(std::size_t count);  // whether its `count`-th operation completes before its wait
[[noreturn]] void give_up(const std::string& message);  // aborts the block
unsigned char* shared_at(std::uint32_t address);
// Defined in sm90/tma.cc: ends a block and returns what is wrong with its loads, or "".
std::string end_sm90();
void end_wgmma();  // defined in sm90/wgmma.cc
// Defined in memory.cc.
bool in_device(const void* at);

}  // namespace cuda_on_cpu
