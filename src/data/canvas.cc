#include "canvas.h"

#include <algorithm>
#include <utility>

namespace needle::data {

const char* offset(const void* data, Element type, std::int64_t count) {
  return static_cast<const char*>(data) + count * static_cast<std::int64_t>(size_of(type));
}

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {std::max(a.top, b.top), std::max(a.left, b.left), std::min(a.bottom, b.bottom),
          std::min(a.right, b.right)};
}

static Rectangle moved(const Rectangle& r, std::int64_t down, std::int64_t right) {
  return {r.top + down, r.left + right, r.bottom + down, r.right + right};
}

void take_window(Canvas& canvas, const Rectangle& window) {
  Rectangle kept = intersection(canvas.inside, window);
  if (kept.empty()) {
    kept = {window.top, window.left, window.top, window.left};
  } else {
    canvas.data = offset(canvas.data, canvas.source_type,
                         (kept.top - canvas.inside.top) * canvas.row_stride +
                             (kept.left - canvas.inside.left) * canvas.column_stride);
  }
  canvas.inside = moved(kept, -window.top, -window.left);
  for (int i = 0; i < canvas.erased_count; ++i) {
    Rectangle& where = canvas.erased[i].where;
    where = moved(intersection(where, window), -window.top, -window.left);
  }
  canvas.height = window.height();
  canvas.width = window.width();
}

void mirror(Canvas& canvas, bool horizontally) {
  const std::int64_t size = horizontally ? canvas.width : canvas.height;
  const auto turn = [&](Rectangle& r) {
    std::int64_t& from = horizontally ? r.left : r.top;
    std::int64_t& to = horizontally ? r.right : r.bottom;
    from = size - std::exchange(to, size - from);
  };
  std::int64_t& stride = horizontally ? canvas.column_stride : canvas.row_stride;
  const std::int64_t n = horizontally ? canvas.inside.width() : canvas.inside.height();
  if (n > 0) canvas.data = offset(canvas.data, canvas.source_type, (n - 1) * stride);
  stride = -stride;
  turn(canvas.inside);
  for (int i = 0; i < canvas.erased_count; ++i) turn(canvas.erased[i].where);
}

}  // namespace needle::data
