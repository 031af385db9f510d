// Shared by batch_norm, its gradient and the epilogues: chunks of rows, sums over the channels, and
// the pass that writes out = formula(elements, the channel's constants). Channels are adjacent in
// memory (NHWC, see channel_rows.h); views of other layouts (NCHW, unusual strides) are copied.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <type_traits>

#include "channel_rows.h"
#include "core/normalization.h"
#include "core/thread_pool.h"
#include "row_major.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTaskElements = 1 << 15;  // elements that one thread transforms at a time
constexpr Index kChunkElements = 1 << 16, kChunkRows = 128, kMostChunks = 128;

// Returns true if the loops take `v` in place.
bool has_rows(const View& v) { return v.strides[v.ndim - 1] == 1 || v.shape[v.ndim - 1] == 1; }

template <class T>
T element(const View& v, Index i) {
  return data_of<const T>(v)[i * v.strides[0]];
}

// ---- chunks of rows ----------------------------------------------------------------------------

Index chunk_of(const ChannelRows& rows) {  // wide rows
  const Index even = (rows.count() + kMostChunks - 1) / kMostChunks;
  const Index least =
      kChunkRows < kChunkElements / rows.width() ? kChunkElements / rows.width() : kChunkRows;
  return even < least ? least : even;
}

// Calls f(begin, end, first, second) for each chunk of rows [begin, end). f fills `first` and
// `second`, the two rows of parts[chunk], which has shape [2][channels].
template <class F>
void each_chunk(const ChannelRows& rows, double* parts, F&& f) {
  const Index chunk = chunk_of(rows), chunks = (rows.count() + chunk - 1) / chunk;
  parallel_for(chunks, 1, [&](Index first, Index last) {
    for (Index i = first; i < last; ++i) {
      double* part = parts + 2 * i * rows.channels;
      const Index end = (i + 1) * chunk < rows.count() ? (i + 1) * chunk : rows.count();
      f(i * chunk, end, part, part + rows.channels);
    }
  });
}

// ---- sums over channels ------------------------------------------------------------------------

struct ChannelSums {
  double first = 0, second = 0;
};

// Sums two terms per channel, which source.terms() computes. Rows are divided into chunks, whose
// partial sums are added in order.
template <class T, class Source>
void sum_channels(const ChannelRows& rows, const Source& source, ChannelSums* totals) {
  const Index channels = rows.channels, width = rows.width(), chunk = chunk_of(rows);
  const Index chunks = (rows.count() + chunk - 1) / chunk;
  const ThreadScratch scratch(static_cast<std::size_t>(2 * chunks * channels) * sizeof(double));
  double* parts = scratch.as<double>();
  each_chunk(rows, parts, [&](Index begin, Index end, double* firsts, double* seconds) {
    const ThreadScratch memory(ColumnSums<T>::bytes(width));
    ColumnSums<T> sums(memory.as<void>(), width);
    rows.each(begin, end,
              [&](const Index* positions, const Index* strides, Index count, Index columns) {
                sums.add(positions, strides, count, columns,
                         [source](auto kind, const Index* row, Index c, auto& first, auto& second) {
                           source.template terms<decltype(kind)>(row, c, first, second);
                         });
              });
    sums.flush();
    rows.fold(sums.firsts);
    rows.fold(sums.seconds);
    for (Index c = 0; c < channels; ++c) {
      firsts[c] = sums.firsts[c];
      seconds[c] = sums.seconds[c];
    }
  });
  for (Index c = 0; c < channels; ++c) totals[c] = {};
  for (Index i = 0; i < chunks; ++i) {
    const double* part = parts + 2 * i * channels;
    for (Index c = 0; c < channels; ++c) totals[c].first += part[c];
    for (Index c = 0; c < channels; ++c) totals[c].second += part[channels + c];
  }
}

// ---- application: out = formula(elements, the channel's constants) -----------------------------

// Returns true if results should use non-temporal stores. A result this large would evict the
// operands, which are read twice, and would itself be evicted before it is read. Rows must be
// vectors.
template <class T>
bool streams(const ChannelRows& rows, const T* to, int out) {
  constexpr Index kStreamedBytes = Index{12} << 20;
  const Index width = rows.width() * Index{sizeof(T)};
  const bool dense = rows.leading.ndim == 1 && rows.leading.strides[out][0] == rows.channels;
  return dense && rows.count() * width > kStreamedBytes && width % simd::kVectorBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(to) % simd::kVectorBytes == 0;
}

// Stores a vector without caching it; end_stream() makes it visible to other threads.
template <class T>
[[gnu::always_inline]] inline void stream(T* p, simd::Vector<T> v) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(p), reinterpret_cast<__m512i>(v));
#elif defined(__AVX2__)
  _mm256_stream_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(v));
#else
  put(p, v);
#endif
}
[[gnu::always_inline]] inline void end_stream() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

template <class T, class V>
[[gnu::always_inline]] inline void put_result(T* to, V value, bool streamed) {
  if constexpr (sizeof(V) > sizeof(T)) {
    if (streamed) return stream(to, value);
  }
  put(to, value);
}

// Computes to[at[out] + i] = formula(V{}, at, i) for all elements. at[v] + i is the position of an
// element in view v; `out` is the number of the view that is written. Tasks go from the last rows
// to the first. The previous pass read the last rows last, so the cache still holds them; in the
// end it will hold the results that the next kernel reads first.
template <class T, class F>
void apply(const ChannelRows& rows, T* to, int out, F&& formula) {
  const Index grain = kTaskElements / rows.width() + 1, all = rows.count();
  const bool streamed = streams(rows, to, out);
  parallel_for(all, grain, [&](Index before, Index last) {
    const Index begin = all - last, end = all - before;
    rows.each(begin, end,
              [&](const Index* positions, const Index* strides, Index count, Index columns) {
                each_group<2>(count, [&](auto group, Index row) {
                  constexpr int kRows = decltype(group)::value;
                  const auto local = formula;  // a copy that stores cannot alias stays in registers
                  Index places[kRows][4];
                  T* results_at[kRows];
                  for (int r = 0; r < kRows; ++r) {
                    for (int v = 0; v < 4; ++v)
                      places[r][v] = positions[v] + (row + r) * strides[v];
                    results_at[r] = to + places[r][out];
                  }
                  each_column<T>(columns, [&](auto kind, Index c) {
                    decltype(kind) results[kRows];  // all loads precede the first store
                    for (int r = 0; r < kRows; ++r) {
                      results[r] = local(kind, static_cast<const Index*>(places[r]), c);
                    }
                    for (int r = 0; r < kRows; ++r)
                      put_result(results_at[r] + c, results[r], streamed);
                  });
                });
              });
    if (streamed) end_stream();
  });
}

// kCount constants per channel, repeated for each column of wide rows.
template <class T, int kCount>
struct Constants {
  const ChannelRows& rows;
  ThreadScratch scratch;

  explicit Constants(const ChannelRows& layout)
      : rows(layout), scratch(static_cast<std::size_t>(kCount * layout.width()) * sizeof(T)) {}
  T* operator[](int i) const { return scratch.as<T>() + i * rows.width(); }
  void repeat() const {
    for (int i = 0; i < kCount; ++i) rows.repeat((*this)[i]);
  }
};

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
