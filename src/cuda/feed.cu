#include "feed.h"

#include <cstring>
#include <memory>
#include <vector>

#include "core/buffer_cache.h"
#include "core/thread_pool.h"
#include "device.h"

namespace needle::cuda {
namespace {

constexpr int kTurns = 2;
constexpr std::size_t kCopyGrain = 1 << 20;  // bytes that a thread gathers at a time

struct Room {
  char* data = nullptr;
  std::size_t bytes = 0;
};

std::size_t grown(std::size_t bytes) { return bytes + bytes / 4; }

struct Buffer {
  Room device, host;                  // the same places in both
  std::unique_ptr<Event> sent, used;  // the host's side was read; kernels have read the device's
};

// Returns the offset of each piece, then the end of the last one.
std::vector<std::size_t> places_of(std::span<const HostPiece> pieces) {
  std::vector<std::size_t> places{0};
  for (const HostPiece& piece : pieces) {
    places.push_back(places.back() + FeedTurn::place_after(piece.bytes));
  }
  return places;
}

}  // namespace

class Feed {
 public:
  std::mutex mutex;  // held during a turn

  explicit Feed(int device) : device_(device) {}

  void begin() {
    turn_ = (turn_ + 1) % kTurns;
    Buffer& buffer = now();
    if (buffer.sent == nullptr) buffer.sent = std::make_unique<Event>(device_);
    if (buffer.used == nullptr) buffer.used = std::make_unique<Event>(device_);
    use(device_);
  }

  char* send(std::span<const HostPiece> pieces) {
    const std::vector<std::size_t> places = places_of(pieces);
    Buffer& buffer = now();
    make_room(buffer, places.back());
    buffer.used->hold(copy_stream(device_));
    for (std::size_t i = 0; i < pieces.size();) {
      if (is_pinned(pieces[i].data)) {
        copy_later(copy_stream(device_), buffer.device.data + places[i], pieces[i].data,
                   pieces[i].bytes);
        ++i;
        continue;
      }
      const std::size_t first = i;
      while (i < pieces.size() && !is_pinned(pieces[i].data)) ++i;
      gather(buffer, pieces, places, first, i);
      copy_later(copy_stream(device_), buffer.device.data + places[first],
                 buffer.host.data + places[first], places[i] - places[first]);
    }
    buffer.sent->record(copy_stream(device_));
    buffer.sent->hold(stream(device_));
    return buffer.device.data;
  }

  void empty() {
    const std::lock_guard lock(mutex);
    for (Buffer& buffer : buffers_) give_back(buffer);
  }

  void end() {
    now().used->record(stream(device_));
    now().sent->wait("upload");
  }

 private:
  Buffer& now() { return buffers_[turn_]; }

  // Waits until the previous fill and the previous reads of the buffer have ended.
  void give_back(Buffer& buffer) const {
    if (buffer.device.data != nullptr) {
      buffer.used->wait("upload");
      give_memory_back(device_, buffer.device.data);
    }
    if (buffer.host.data != nullptr) give_pinned_back(buffer.host.data);
    buffer.device = buffer.host = {};
  }

  void make_room(Buffer& buffer, std::size_t bytes) {
    if (buffer.device.bytes >= bytes && buffer.device.data != nullptr) return;
    give_back(buffer);
    auto* data = static_cast<char*>(take_memory(device_, grown(bytes)));
    if (data == nullptr) {
      throw OutOfMemory("upload: the GPU has no " + std::to_string(grown(bytes)) +
                        " bytes left to stage a batch; make it smaller, or free arrays");
    }
    buffer.device = {data, grown(bytes)};
  }

  // Gathers pieces [first, last) in pinned memory with the threads of the pool.
  static void gather(Buffer& buffer, std::span<const HostPiece> pieces,
                     const std::vector<std::size_t>& places, std::size_t first, std::size_t last) {
    if (buffer.host.data == nullptr) {
      buffer.host = {static_cast<char*>(take_pinned(buffer.device.bytes)), buffer.device.bytes};
    }
    const std::size_t each = (places[last] - places[first]) / (last - first);
    parallel_for(std::int64_t(last - first), std::int64_t(kCopyGrain / (each + 1) + 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::size_t i = first + begin; i < first + end; ++i) {
                     std::memcpy(buffer.host.data + places[i], pieces[i].data, pieces[i].bytes);
                   }
                 });
  }

  int device_, turn_ = 0;
  Buffer buffers_[kTurns];
};

namespace {

// Feeds, like devices, are never destroyed.
Feed& feed_of(int device) {
  static std::mutex mutex;
  static Feed* feeds[kMaxDevices] = {};
  const std::lock_guard lock(mutex);
  if (feeds[device] == nullptr) feeds[device] = new Feed(device);
  return *feeds[device];
}

}  // namespace

FeedTurn::FeedTurn(int device) : feed_(feed_of(device)), lock_(feed_.mutex) {
  refuse_while_recording("upload");
  feed_.begin();
}

FeedTurn::~FeedTurn() {
  try {
    feed_.end();
  } catch (const DeviceFailure&) {  // the next call reports it again
  }
}

void empty_feed(int device) { feed_of(device).empty(); }

char* FeedTurn::send(std::span<const HostPiece> pieces) { return feed_.send(pieces); }

}  // namespace needle::cuda
