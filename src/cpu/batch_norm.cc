// batch_norm computes the statistics of each channel over all other dimensions, and then
// normalises. The second pass also applies ReLU, or adds a residual and applies ReLU. The shape
// alone determines how rows are divided into chunks. Each chunk computes moments about a first
// mean; these are combined in double and in order. So neither a large mean nor the number of
// threads changes the result.
#include <cmath>
#include <limits>

#include "batch_norm.h"
#include "kernels.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kSamples =
    8;  // wide rows (or up to four times as many) whose mean is the first mean

// ---- statistics --------------------------------------------------------------------------------

// Computes each column's mean over a few rows of a chunk. Moments about it lose precision by at
// most a factor of sqrt(rows / kSamples), whatever the values are.
template <class T>
void first_mean(const ChannelRows& rows, const T* x, Index begin, Index end, double* sums,
                T* shift) {
  for (Index c = 0; c < rows.width(); ++c) sums[c] = 0.0;
  const Index whole = rows.leading.size / rows.merged;  // without a shorter last one
  const Index stop = end < whole || begin >= whole ? end : whole;
  const Index least = stop - begin < kSamples ? stop - begin : kSamples;
  const Index eighth = (stop - begin) / 8, most = eighth < 4 * kSamples ? eighth : 4 * kSamples;
  const Index samples = most < least ? least : most;
  Index taken = 0;
  for (Index i = 0; i < samples; ++i) {
    const Index row = begin + i * (stop - begin) / samples;
    taken += rows.pixels(row, row + 1);
    rows.each(row, row + 1, [&](const Index* positions, const Index*, Index, Index width) {
      for (Index c = 0; c < width; ++c) sums[c] += double(x[positions[0] + c]);
    });
  }
  rows.fold(sums);
  for (Index c = 0; c < rows.channels; ++c) shift[c] = T(sums[c] / double(taken));
  rows.repeat(shift);
}

// Computes each channel's mean and sum of squared deviations over wide rows [begin, end).
template <class T>
void chunk_moments(const ChannelRows& rows, const T* x, Index begin, Index end, double* means,
                   double* squares) {
  const Index width = rows.width();
  const ThreadScratch scratch(ColumnSums<T>::bytes(width) +
                              static_cast<std::size_t>(width) * sizeof(T));
  ColumnSums<T> sums(scratch.as<void>(), width);
  T* shift = sums.second + width;
  first_mean(rows, x, begin, end, sums.firsts, shift);
  for (Index c = 0; c < width; ++c) sums.firsts[c] = 0.0;
  rows.each(begin, end,
            [&](const Index* positions, const Index* strides, Index count, Index columns) {
              sums.add(positions, strides, count, columns,
                       [=]<class V>(V, const Index* row, Index c, auto& first, auto& second) {
                         first = get<V>(x + row[0] + c) - get<V>(shift + c);
                         second = first * first;
                       });
            });
  sums.flush();
  rows.fold(sums.firsts);
  rows.fold(sums.seconds);
  const double n = double(rows.pixels(begin, end)), share = 1.0 / n;
  for (Index c = 0; c < rows.channels; ++c) {
    const double first = sums.firsts[c], deviations = sums.seconds[c] - first * first * share;
    means[c] = double(shift[c]) + first * share;
    squares[c] = deviations < 0 ? 0.0 : deviations;
  }
}

template <class T>
void moments(const ChannelRows& rows, const T* x, Moments* totals) {
  const Index channels = rows.channels, chunk = chunk_of(rows);
  const Index chunks = (rows.count() + chunk - 1) / chunk;
  const ThreadScratch scratch(static_cast<std::size_t>(2 * chunks * channels) * sizeof(double));
  double* parts = scratch.as<double>();
  each_chunk(rows, parts, [&](Index begin, Index end, double* means, double* squares) {
    chunk_moments(rows, x, begin, end, means, squares);
  });
  const double n = double(rows.leading.size);
  for (Index c = 0; c < channels; ++c) totals[c] = {n, 0.0, 0.0};
  const auto each_part = [&](auto&& add) {
    for (Index i = 0; i < chunks; ++i) {
      const Index end = (i + 1) * chunk < rows.count() ? (i + 1) * chunk : rows.count();
      const double size = double(rows.pixels(i * chunk, end)), *part = parts + 2 * i * channels;
      for (Index c = 0; c < channels; ++c) add(totals[c], size, part[c], part[channels + c]);
    }
  };
  each_part([n](Moments& m, double size, double mean, double) { m.mean += mean * (size / n); });
  each_part([](Moments& m, double size, double mean, double squares) {
    m.squares += squares + size * (mean - m.mean) * (mean - m.mean);
  });
}

// ---- normalisation -----------------------------------------------------------------------------

template <Then then, class V>
[[gnu::always_inline]] inline V activated(V value, V added) {
  if constexpr (then == Then::kAddRelu) value += added;
  if constexpr (then != Then::kNothing) value = value < V{} ? V{} : value;  // NaN stays
  return value;
}

template <class T, Then then>
void normalize(const View& x_view, const View& weight, const View& bias, const View& added_view,
               const View& out, const View& mean, const View& var, double eps) {
  constexpr bool kAdds = then == Then::kAddRelu;
  const RowMajor x(x_view, has_rows(x_view)), written(out, has_rows(out));
  const RowMajor added(added_view, !kAdds || has_rows(added_view));
  x.load();
  added.load();
  const View* views[] = {&x.view, &written.view, &added.view};
  const ChannelRows rows(views, kAdds ? 3 : 2);
  const Index channels = rows.channels;
  const ThreadScratch statistics(static_cast<std::size_t>(channels) * sizeof(Moments));
  Moments* totals = statistics.as<Moments>();
  const T* from = data_of<const T>(x.view);
  moments(rows, from, totals);

  // out = (x - center) * scale + shift; the shift includes the rounding error of the mean.
  const Constants<T, 3> constants(rows);
  T *center = constants[0], *scale = constants[1], *shift = constants[2];
  for (Index c = 0; c < channels; ++c) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    const double m = rows.leading.size > 0 ? totals[c].mean : none;
    const double v = rows.leading.size > 0 ? totals[c].variance() : none;
    const double s = double(element<T>(weight, c)) / std::sqrt(v + eps);
    center[c] = T(m);
    scale[c] = T(s);
    shift[c] = T(double(element<T>(bias, c)) - (m - double(center[c])) * s);
    data_of<T>(mean)[c * mean.strides[0]] = T(m);
    data_of<T>(var)[c * var.strides[0]] = T(v);
  }
  constants.repeat();
  const T* other = data_of<const T>(added.view);
  apply(rows, data_of<T>(written.view), 1, [=]<class V>(V, const Index* positions, Index i) {
    const V centred = get<V>(from + positions[0] + i) - get<V>(center + i);
    const V value = centred * get<V>(scale + i) + get<V>(shift + i);
    return activated<then>(value, kAdds ? get<V>(other + positions[2] + i) : V{});
  });
  written.store();
}

}  // namespace

void batch_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps,
                const Epilogue& epilogue) {
  if (x.shape[x.ndim - 1] == 0) return;
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    const View& added = epilogue.residual != nullptr ? *epilogue.residual : x;
    with_then(epilogue.residual != nullptr, epilogue.relu,
              [&](auto then) { normalize<T, then>(x, weight, bias, added, out, mean, var, eps); });
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
