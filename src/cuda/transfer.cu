#include "transfer.h"

#include <algorithm>
#include <vector>

#include "allocator.h"
#include "core/view_rules.h"
#include "device.h"
#include "feed.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

constexpr std::size_t kTurn = 8 << 20;   // bytes staged per turn
constexpr std::size_t kPiece = 1 << 20;  // bytes that a thread copies to pinned memory at a time

std::size_t bytes_of(const View& v) {
  return static_cast<std::size_t>(size_of(v)) * size_of(v.dtype);
}

// Copies `bytes` to `to` while earlier kernels run. When a turn of the feed ends, the source has
// been read, which CUDA does not promise for asynchronous copies, even from pageable memory.
void send(int device, const char* host, std::size_t bytes, char* to) {
  for (std::size_t begin = 0; begin < bytes; begin += kTurn) {
    const std::size_t end = std::min(begin + kTurn, bytes), each = is_pinned(host) ? kTurn : kPiece;
    std::vector<HostPiece> pieces;
    for (std::size_t i = begin; i < end; i += each) {
      pieces.push_back({host + i, std::min(each, end - i)});
    }
    FeedTurn turn(device);
    copy_later(stream(device), to + begin, turn.send(pieces), end - begin);
  }
}

}  // namespace

void upload(const void* host, const View& out) {
  const std::size_t bytes = bytes_of(out);
  if (bytes == 0) return;
  const auto* const from = static_cast<const char*>(host);
  if (is_compact(out)) return send(out.device, from, bytes, static_cast<char*>(out.data));
  const Temporary straight(bytes, out.device);
  send(out.device, from, bytes, straight.as<char>());
  copy(row_major(out, straight.as<void>()), out);
}

void download(const View& a, void* host) {
  const std::size_t bytes = bytes_of(a);
  if (bytes == 0) return;
  if (is_compact(a)) return copy_to_host(a.device, host, a.data, bytes);
  const Temporary straight(bytes, a.device);
  copy(a, row_major(a, straight.as<void>()));
  copy_to_host(a.device, host, straight.as<void>(), bytes);
}

}  // namespace needle::cuda
