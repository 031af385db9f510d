// Copies from host memory to a device on a separate stream, while kernels work on the previous
// data. There are two buffers on the device: one is filled while kernels read the other. Used for
// batches of images and for uploads (transfer.cu).
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

// One turn: send(), launch kernels that read the sent data, destroy the object. After that the
// pieces may change, because they have been read (the kernels may still be running).
class FeedTurn {
 public:
  explicit FeedTurn(int device);
  ~FeedTurn();
  FeedTurn(const FeedTurn&) = delete;
  FeedTurn& operator=(const FeedTurn&) = delete;

  // The pieces one after the other, each from a multiple of kAlign on; the next kernels of the
  // device's stream find them there. Pinned pieces are read where they are, others are gathered in
  // pinned memory first. Once a turn.
  char* send(std::span<const HostPiece> pieces);

  static constexpr std::size_t kAlign = 16;
  static std::size_t place_after(std::size_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign;
  }

 private:
  Feed& feed_;
  std::unique_lock<std::mutex> lock_;
};

// Gives the buffers back to the driver, once they have been read.
void empty_feed(int device);

}  // namespace needle::cuda
