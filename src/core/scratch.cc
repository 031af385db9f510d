#include "scratch.h"

#include <cstdint>
#include <cstdlib>
#include <new>

namespace needle {
namespace {

constexpr std::size_t kAlignment = 64;
// The largest block that a thread keeps between two uses.
constexpr std::size_t kKept = std::size_t{64} << 20;

void* allocate(std::size_t bytes) {
  void* data = std::aligned_alloc(kAlignment, bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

std::size_t rounded(std::size_t bytes) {
  if (bytes > SIZE_MAX / 4) throw std::bad_alloc();
  return bytes == 0 ? kAlignment : (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

struct alignas(kAlignment) Block {  // its memory follows it
  Block* previous;
  std::size_t size;
};

// A list of blocks; pieces are cut from the newest one. If several blocks were needed, they are
// freed when the last piece is released, and the next piece gets one block as large as all of them.
struct Arena {
  Block* block = nullptr;
  std::size_t used = 0;             // of the newest block
  std::size_t total = 0, peak = 0;  // bytes of all blocks, now and at most
  int pieces = 0;

  ~Arena() { release_until(nullptr); }

  void release_until(Block* kept) {
    while (block != kept) {
      Block* previous = block->previous;
      total -= block->size;
      std::free(block);
      block = previous;
    }
  }

  void add_block(std::size_t bytes) {
    if (pieces == 0) {
      release_until(nullptr);
      if (bytes < peak) bytes = peak;
    }
    auto* added = static_cast<Block*>(allocate(sizeof(Block) + bytes));
    *added = {block, bytes};
    block = added;
    used = 0;
    total += bytes;
    if (total > peak) peak = total;
  }

  void* take(std::size_t bytes) {
    if (block == nullptr || block->size - used < bytes) add_block(bytes);
    ++pieces;
    char* data = reinterpret_cast<char*>(block + 1) + used;
    used += bytes;
    return data;
  }

  void give_back(Block* before, std::size_t used_before) {
    used = used_before;
    if (--pieces > 0) {
      release_until(before);
    } else {
      if (peak > kKept) peak = 0;
      if (block->previous != nullptr || block->size > kKept) release_until(nullptr);
      used = 0;
    }
  }
};

thread_local Arena arena;

}  // namespace

Scratch::Scratch(std::size_t bytes) : data_(allocate(rounded(bytes))) {}

Scratch::~Scratch() { std::free(data_); }

ThreadScratch::ThreadScratch(std::size_t bytes) : block_(arena.block), used_(arena.used) {
  data_ = arena.take(rounded(bytes));
}

ThreadScratch::~ThreadScratch() { arena.give_back(static_cast<Block*>(block_), used_); }

}  // namespace needle
