// Shared by batch_norm and its gradient: the layout of their views, chunks of rows, and the pass
// that writes out = formula(elements, the channel's constants). Two layouts have loops of their
// own. "Rows": channels are adjacent in memory (NHWC), see channel_rows.h. "Runs": any other layout
// (NCHW, unusual strides), channel after channel along the longest merged dimension.
#pragma once

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "channel_rows.h"
#include "core/scratch.h"
#include "core/thread_pool.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kTaskElements = 1 << 15;  // elements that one thread transforms at a time
constexpr Index kChunkElements = 1 << 16, kChunkRows = 128, kMostChunks = 128;

// The epilogue of the normalisation.
enum class Then { kNothing, kRelu, kAddRelu };

// The layout that the views of one call share.
struct Layout {
  Leading leading;  // all dimensions but the channels
  Index channels;
  Index channel_strides[4];
  bool rows;

  Index run() const { return leading.ndim > 0 ? leading.shape[leading.ndim - 1] : 1; }
  Index run_stride(int view) const {
    return leading.ndim > 0 ? leading.strides[view][leading.ndim - 1] : 1;
  }
  bool dense_runs() const {
    bool dense = true;
    for (int v = 0; v < leading.views; ++v) dense = dense && run_stride(v) == 1;
    return dense;
  }
  // Calls f(offsets) for the start of each run of channel c.
  template <class F>
  [[gnu::always_inline]] void each_run(Index c, F&& f) const {
    Leading outer = leading;
    if (outer.ndim > 0) --outer.ndim;
    if (leading.size == 0) return;
    outer.each(0, leading.size / run(), [&](Index, const Index* offsets) {
      Index positions[4] = {};
      for (int v = 0; v < leading.views; ++v) positions[v] = offsets[v] + c * channel_strides[v];
      f(static_cast<const Index*>(positions));
    });
  }
};

Layout layout_of(const View* const* views, int count) {
  const int last = views[0]->ndim - 1;
  Layout layout;
  layout.leading = leading_dims(last, -1, views, count);
  layout.channels = views[0]->shape[last];
  layout.rows = layout.channels > 1;
  for (int v = 0; v < count; ++v) {
    layout.channel_strides[v] = views[v]->strides[last];
    layout.rows = layout.rows && views[v]->strides[last] == 1;
  }
  return layout;
}

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

// f(begin, end, first row of parts, second row of parts) fills parts[chunk], of shape
// [2][channels], for each chunk.
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

// Returns as V the constants of a column of a wide row, or those of one channel.
struct OfColumn {
  Index column;
  template <class V, class T>
  [[gnu::always_inline]] V constant(const T* values) const {
    return get<V>(values + column);
  }
};
struct OfChannel {
  Index channel;
  template <class V, class T>
  [[gnu::always_inline]] V constant(const T* values) const {
    return V{} + values[channel];
  }
};

struct ChannelSums {
  double first = 0, second = 0;
};

// Sums over each channel the two terms that source.terms() assigns. Rows are divided into chunks,
// whose partial sums are added in order.
template <class T, class Source>
void sums_by_rows(const ChannelRows& rows, const Source& source, ChannelSums* totals) {
  const Index channels = rows.channels, width = rows.width(), chunk = chunk_of(rows);
  const Index chunks = (rows.count() + chunk - 1) / chunk;
  const ThreadScratch scratch(static_cast<std::size_t>(2 * chunks * channels) * sizeof(double));
  double* parts = scratch.as<double>();
  each_chunk(rows, parts, [&](Index begin, Index end, double* firsts, double* seconds) {
    const ThreadScratch memory(ColumnSums<T>::bytes(width));
    ColumnSums<T> sums(memory.as<void>(), width);
    rows.each(
        begin, end, [&](const Index* positions, const Index* strides, Index count, Index columns) {
          sums.add(positions, strides, count, columns,
                   [source](auto kind, const Index* row, Index c, auto& first, auto& second) {
                     source.template terms<decltype(kind)>(OfColumn{c}, row, c, first, second);
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

template <class T, class Source>
void sums_by_runs(const Layout& layout, const Source& source, ChannelSums* totals) {
  const bool dense = layout.dense_runs();
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      double sums[2] = {};
      layout.each_run(c, [&](const Index* positions) {
        sum_terms<T>(layout.run(), dense, sums, [&](auto kind, Index i, auto* s) {
          Index places[4];
          for (int v = 0; v < layout.leading.views; ++v) {
            places[v] = positions[v] + i * layout.run_stride(v);
          }
          decltype(kind) first, second;
          source.template terms<decltype(kind)>(OfChannel{c}, places, 0, first, second);
          s[0] += first;
          s[1] += second;
        });
      });
      totals[c] = {sums[0], sums[1]};
    }
  });
}

template <class T, class Source>
void sum_channels(const Layout& layout, const Source& source, ChannelSums* totals) {
  layout.rows ? sums_by_rows<T>(ChannelRows(layout.leading, layout.channels), source, totals)
              : sums_by_runs<T>(layout, source, totals);
}

// ---- application: out = formula(elements, the channel's constants) -----------------------------

// Returns true if results are stored past the caches: so large a result would evict the operands,
// which are read twice, and would itself be evicted before it is read. Rows must be vectors.
template <class T>
bool streams(const ChannelRows& rows, const T* to, int out) {
  constexpr Index kStreamedBytes = Index{12} << 20;
  const Index width = rows.width() * Index{sizeof(T)};
  const bool dense = rows.leading.ndim == 1 && rows.leading.strides[out][0] == rows.channels;
  return dense && rows.count() * width > kStreamedBytes && width % simd::kVectorBytes == 0 &&
         reinterpret_cast<std::uintptr_t>(to) % simd::kVectorBytes == 0;
}

// Stores a vector past the caches; end_stream() makes it visible to other threads.
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

// Computes to[at[out] + i] = formula(V{}, constants, at, i), where the elements of view v are at
// position at[v] + i. Tasks go from the last rows to the first: the previous pass read the last
// rows last, so the cache still holds them, and it will hold the results that the next kernel reads
// first.
template <class T, class F>
void apply_rows(const ChannelRows& rows, T* to, int out, F&& formula) {
  const Index grain = kTaskElements / rows.width() + 1, all = rows.count();
  const bool streamed = streams(rows, to, out);
  parallel_for(all, grain, [&](Index before, Index last) {
    const Index begin = all - last, end = all - before;
    rows.each(
        begin, end, [&](const Index* positions, const Index* strides, Index count, Index columns) {
          each_group<2>(count, [&](auto group, Index row) {
            constexpr int kRows = decltype(group)::value;
            const auto local = formula;  // a copy that stores cannot alias stays in registers
            Index places[kRows][4];
            T* results_at[kRows];
            for (int r = 0; r < kRows; ++r) {
              for (int v = 0; v < 4; ++v) places[r][v] = positions[v] + (row + r) * strides[v];
              results_at[r] = to + places[r][out];
            }
            each_column<T>(columns, [&](auto kind, Index c) {
              decltype(kind) results[kRows];  // all loads precede the first store
              for (int r = 0; r < kRows; ++r) {
                results[r] = local(kind, OfColumn{c}, static_cast<const Index*>(places[r]), c);
              }
              for (int r = 0; r < kRows; ++r) put_result(results_at[r] + c, results[r], streamed);
            });
          });
        });
    if (streamed) end_stream();
  });
}

template <class T, class F>
void apply_runs(const Layout& layout, T* to, int out, F&& formula) {
  const Index n = layout.run();
  const bool dense = layout.dense_runs();
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      layout.each_run(c, [&](const Index* positions) {
        if (dense) {
          each_column<T>(n, [&](auto kind, Index i) {
            put(to + positions[out] + i, formula(kind, OfChannel{c}, positions, i));
          });
          return;
        }
        for (Index i = 0; i < n; ++i) {
          Index places[4] = {};
          for (int v = 0; v < layout.leading.views; ++v) {
            places[v] = positions[v] + i * layout.run_stride(v);
          }
          to[places[out]] = formula(T{}, OfChannel{c}, static_cast<const Index*>(places), Index(0));
        }
      });
    }
  });
}

template <class T, class F>
void apply(const Layout& layout, T* to, int out, F&& formula) {
  layout.rows ? apply_rows(ChannelRows(layout.leading, layout.channels), to, out, formula)
              : apply_runs(layout, to, out, formula);
}

// Arrays of `width` constants: one per column of wide rows, or one per channel.
template <class T, int kCount>
struct Constants {
  Index width;
  ThreadScratch scratch;

  explicit Constants(const Layout& layout)
      : width(layout.rows ? ChannelRows(layout.leading, layout.channels).width() : layout.channels),
        scratch(static_cast<std::size_t>(kCount * width) * sizeof(T)) {}
  T* operator[](int i) const { return scratch.as<T>() + i * width; }
  void repeat(const Layout& layout) const {
    if (!layout.rows) return;
    for (int i = 0; i < kCount; ++i) {
      ChannelRows(layout.leading, layout.channels).repeat((*this)[i]);
    }
  }
};

}  // namespace
}  // namespace needle::cpu::NEEDLE_ISA
