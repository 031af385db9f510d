// Copies host memory to a device on a separate stream while kernels process the previous data. The
// device has two buffers: one is filled while kernels read the other (double buffering). Image
// batches and uploads (transfer.cu) use it.
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

namespace needle::cuda {

struct HostPiece {
  const void* data;
  std::size_t bytes;
};

class Feed;

// One use of a buffer: call send(), launch the kernels that read the data, destroy the object.
// After that the source may change, because it has been read; the kernels may still be running.
class FeedTurn {
 public:
  explicit FeedTurn(int device);
  ~FeedTurn();
  FeedTurn(const FeedTurn&) = delete;
  FeedTurn& operator=(const FeedTurn&) = delete;

  // Sends the pieces, each aligned to kAlign, and returns their address for the next kernels of the
  // device's stream. Pinned pieces are copied from where they are; others are gathered in pinned
  // memory first. Call it once per object.
  char* send(std::span<const HostPiece> pieces);

  static constexpr std::size_t kAlign = 16;
  static std::size_t place_after(std::size_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }

 private:
  Feed& feed_;
  std::unique_lock<std::mutex> lock_;
};

// Frees the buffers after their last read.
void empty_feed(int device);

}  // namespace needle::cuda
