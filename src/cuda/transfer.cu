#include "transfer.h"

#include <vector>

#include "allocator.h"
#include "core/view_rules.h"
#include "device.h"
#include "feed.h"
#include "kernels.h"

namespace needle::cuda {
namespace {

constexpr std::size_t kSmall = 1 << 16;

std::size_t bytes_of(const View& v) {
  return static_cast<std::size_t>(size_of(v)) * size_of(v.dtype);
}

// Runs beside kernels. The source may change on return, so small ones are copied first.
void upload_pinned(const void* host, const View& out, std::size_t bytes) {
  if (bytes <= kSmall && is_compact(out)) {
    const auto* from = static_cast<const char*>(host);
    const std::vector<char> pageable(from, from + bytes);
    return copy_from_host(out.device, out.data, pageable.data(), bytes);
  }
  FeedTurn turn(out.device);
  const HostPiece all{host, bytes};
  copy(row_major(out, turn.send({&all, 1})), out);
}

}  // namespace

void upload(const void* host, const View& out) {
  const std::size_t bytes = bytes_of(out);
  if (bytes == 0) return;
  if (is_pinned(host)) return upload_pinned(host, out, bytes);
  if (is_compact(out)) return copy_from_host(out.device, out.data, host, bytes);
  const Temporary straight(bytes, out.device);
  copy_from_host(out.device, straight.as<void>(), host, bytes);
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
