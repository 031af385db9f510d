// What block.cc tells watch.cc of the thread that runs, and asks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cuda_on_cpu {

struct Running {
  std::uint32_t launch = 0, block = 0;  // numbers
  std::uint32_t epoch = 0;              // barriers of the block so far
  std::uint32_t warp_epochs[32] = {};   // and of each warp
  std::uint32_t thread = 0;
  bool watched = false;      // accesses are looked at
  bool interleaved = false;  // a thread may be suspended at an access
};
extern Running running;

void begin_watching(const void* kernel);  // a launch
// Returns true if launches are only listed.
bool list(const void* kernel, unsigned blocks, unsigned threads);
void end_block();  // accesses of its warps are complete
// An access by the thread that runs, from the instruction before `from`: also those that the
// compiler does not report. kCopy begins to write, kLanded has written; kProduct is a read by
// wgmma, which sees what was written before a fence of the proxy, and what TMA loads have
// delivered.
enum class Access : std::uint8_t { kRead, kWrite, kAtomic, kCopy, kLanded, kDelivered, kProduct };
void see(Access access, const void* at, std::size_t bytes, const void* from);

// By block.cc.
bool in_shared(const void* at);
void suspend();                       // as if the thread's warp had been
void let_others_run();                // goes on when its turn comes again
bool comes_early(std::size_t count);  // what the thread began as its `count`-th, before its wait
[[noreturn]] void give_up(const std::string& message);  // of the block
unsigned char* shared_at(std::uint32_t address);
// By sm90/tma.cc: ends a block; returns what is wrong with its loads, or "".
std::string end_sm90();
void end_wgmma();  // by sm90/wgmma.cc
// By memory.cc.
bool in_device(const void* at);

}  // namespace cuda_on_cpu
