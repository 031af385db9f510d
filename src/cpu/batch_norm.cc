// batch_norm and its gradient: statistics of each channel over all other dimensions.
//
// Two layouts have their own loops. "Rows": channels are neighbours in memory (NHWC), so vectors
// of channels are summed row after row, a chunk of rows at a time while it is in cache. "Runs": any
// other layout (NCHW, odd strides), channel after channel along the longest merged dimension. In
// both, moments are taken about a first mean of the chunk and combined in double in a fixed order,
// so neither a large mean nor many threads change the result.
#include <cmath>
#include <limits>

#include "core/scratch.h"
#include "core/thread_pool.h"
#include "kernels.h"
#include "runs.h"

namespace needle::cpu::NEEDLE_ISA {
namespace {

constexpr Index kBlock = 64;               // channels summed together
constexpr Index kChunkElements = 1 << 14;  // of a chunk of rows

// What the views of one call have in common.
struct Layout {
  Leading leading;  // all dimensions but the channels
  Index channels;
  Index channel_strides[4];
  bool rows;

  Index chunk() const {
    const Index rows_in_cache = kChunkElements / (channels > 0 ? channels : 1);
    return rows_in_cache < 32 ? 32 : rows_in_cache > 256 ? 256 : rows_in_cache;
  }
  Index chunks() const { return (leading.size + chunk() - 1) / chunk(); }
  Index run() const { return leading.ndim > 0 ? leading.shape[leading.ndim - 1] : 1; }
  Index run_stride(int view) const {
    return leading.ndim > 0 ? leading.strides[view][leading.ndim - 1] : 1;
  }
  // f(offsets) for the start of each run of channel c.
  template <class F>
  [[gnu::always_inline]] void each_run(Index c, F&& f) const {
    Leading outer = leading;
    if (outer.ndim > 0) --outer.ndim;
    if (leading.size == 0) return;
    outer.each(0, leading.size / run(), [&](Index, const Index* offsets) {
      Index at[4];
      for (int v = 0; v < leading.views; ++v) at[v] = offsets[v] + c * channel_strides[v];
      f(static_cast<const Index*>(at));
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

Index block_at(Index first, Index channels) {
  return channels - first < kBlock ? channels - first : kBlock;
}

// ---- statistics --------------------------------------------------------------------------------

template <class T>
void moments_of_rows(const Layout& layout, const T* x, Index begin, Index end, Moments* moments) {
  for (Index first = 0; first < layout.channels; first += kBlock) {
    const Index n = block_at(first, layout.channels);
    T shift[kBlock] = {}, sums[kBlock] = {}, squares[kBlock] = {};
    layout.leading.each(begin, end, [&](Index, const Index* at) {
      const T* row = x + at[0] + first;
      for (Index c = 0; c < n; ++c) shift[c] += row[c];
    });
    for (Index c = 0; c < n; ++c) shift[c] /= T(end - begin);
    layout.leading.each(begin, end, [&](Index, const Index* at) {
      const T* row = x + at[0] + first;
      for (Index c = 0; c < n; ++c) {
        const T d = row[c] - shift[c];
        sums[c] += d;
        squares[c] += d * d;
      }
    });
    for (Index c = 0; c < n; ++c) {
      moments[first + c] = shifted_moments(double(end - begin), double(shift[c]), double(sums[c]),
                                           double(squares[c]));
    }
  }
}

template <class T>
void moments_by_rows(const Layout& layout, const T* x, Moments* totals) {
  const Index channels = layout.channels, chunks = layout.chunks(), chunk = layout.chunk();
  const Scratch scratch(static_cast<std::size_t>(chunks * channels) * sizeof(Moments));
  Moments* parts = scratch.as<Moments>();
  parallel_for(chunks, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index last =
          (i + 1) * chunk < layout.leading.size ? (i + 1) * chunk : layout.leading.size;
      moments_of_rows(layout, x, i * chunk, last, parts + i * channels);
    }
  });
  for (Index c = 0; c < channels; ++c) totals[c] = {};
  for (Index i = 0; i < chunks; ++i) {
    for (Index c = 0; c < channels; ++c) totals[c].add(parts[i * channels + c]);
  }
}

template <class T>
void moments_by_runs(const Layout& layout, const T* x, Moments* totals) {
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      Moments total;
      layout.each_run(c, [&](const Index* at) {
        total.add(moments_of(Run<T>{x + at[0], layout.run_stride(0)}, layout.run()));
      });
      totals[c] = total;
    }
  });
}

// ---- application: out = f(elements, the channel's constants) -----------------------------------

// rows(offsets) is called for each row of channels, or run_loop(channel, offsets) for each run.
template <class T, class Rows, class RunLoop>
void apply(const Layout& layout, Rows rows, RunLoop run_loop) {
  if (layout.rows) {
    parallel_for(layout.leading.size, layout.chunk(), [&](Index begin, Index end) {
      layout.leading.each(begin, end, [&](Index, const Index* at) { rows(at); });
    });
  } else {
    parallel_for(layout.channels, 1, [&](Index begin, Index end) {
      for (Index c = begin; c < end; ++c) {
        layout.each_run(c, [&](const Index* at) { run_loop(c, at); });
      }
    });
  }
}

template <class T>
void normalize(const View& x, const View& weight, const View& bias, const View& out,
               const View& mean, const View& var, double eps) {
  const View* views[] = {&x, &out};
  const Layout layout = layout_of(views, 2);
  const Index channels = layout.channels;
  const Scratch statistics(static_cast<std::size_t>(channels) * sizeof(Moments));
  Moments* moments = statistics.as<Moments>();
  const T* from = data_of<const T>(x);
  layout.rows ? moments_by_rows(layout, from, moments) : moments_by_runs(layout, from, moments);

  // out = (x - center) * scale + shift; what rounding the mean to T loses goes into the shift.
  const Scratch constants(static_cast<std::size_t>(3 * channels) * sizeof(T));
  T *center = constants.as<T>(), *scale = center + channels, *shift = scale + channels;
  for (Index c = 0; c < channels; ++c) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    const double m = layout.leading.size > 0 ? moments[c].mean : none;
    const double v = layout.leading.size > 0 ? moments[c].variance() : none;
    const double s = double(element<T>(weight, c)) / std::sqrt(v + eps);
    center[c] = T(m);
    scale[c] = T(s);
    shift[c] = T(double(element<T>(bias, c)) - (m - double(center[c])) * s);
    data_of<T>(mean)[c * mean.strides[0]] = T(m);
    data_of<T>(var)[c * var.strides[0]] = T(v);
  }
  T* to = data_of<T>(out);
  const Index n = layout.run(), x_stride = layout.run_stride(0), out_stride = layout.run_stride(1);
  apply<T>(
      layout,
      [&](const Index* at) {
        const T* in = from + at[0];
        T* result = to + at[1];
        for (Index c = 0; c < channels; ++c) result[c] = (in[c] - center[c]) * scale[c] + shift[c];
      },
      [&](Index c, const Index* at) {
        const T* in = from + at[0];
        T* result = to + at[1];
        const T m = center[c], s = scale[c], b = shift[c];
        if (x_stride == 1 && out_stride == 1) {
          for (Index i = 0; i < n; ++i) result[i] = (in[i] - m) * s + b;
        } else {
          for (Index i = 0; i < n; ++i) result[i * out_stride] = (in[i * x_stride] - m) * s + b;
        }
      });
}

// ---- gradient ----------------------------------------------------------------------------------

// Sums over a channel of grad and of grad * (x - mean).
struct GradientSums {
  double grad = 0, product = 0;
};

template <class T>
void sums_of_rows(const Layout& layout, const T* grad, const T* x, const T* center, Index begin,
                  Index end, GradientSums* sums) {
  for (Index first = 0; first < layout.channels; first += kBlock) {
    const Index n = block_at(first, layout.channels);
    T plain[kBlock] = {}, products[kBlock] = {};
    layout.leading.each(begin, end, [&](Index, const Index* at) {
      const T *g = grad + at[0] + first, *row = x + at[1] + first, *m = center + first;
      for (Index c = 0; c < n; ++c) {
        plain[c] += g[c];
        products[c] += g[c] * (row[c] - m[c]);
      }
    });
    for (Index c = 0; c < n; ++c) sums[first + c] = {double(plain[c]), double(products[c])};
  }
}

template <class T>
void sums_by_rows(const Layout& layout, const T* grad, const T* x, const T* center,
                  GradientSums* totals) {
  const Index channels = layout.channels, chunks = layout.chunks(), chunk = layout.chunk();
  const Scratch scratch(static_cast<std::size_t>(chunks * channels) * sizeof(GradientSums));
  GradientSums* parts = scratch.as<GradientSums>();
  parallel_for(chunks, 1, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const Index last =
          (i + 1) * chunk < layout.leading.size ? (i + 1) * chunk : layout.leading.size;
      sums_of_rows(layout, grad, x, center, i * chunk, last, parts + i * channels);
    }
  });
  for (Index c = 0; c < channels; ++c) totals[c] = {};
  for (Index i = 0; i < chunks * channels; ++i) {
    totals[i % channels].grad += parts[i].grad;
    totals[i % channels].product += parts[i].product;
  }
}

template <class T>
void sums_by_runs(const Layout& layout, const T* grad, const T* x, const T* center,
                  GradientSums* totals) {
  parallel_for(layout.channels, 1, [&](Index begin, Index end) {
    for (Index c = begin; c < end; ++c) {
      double sums[2] = {};
      const T m = center[c];
      layout.each_run(c, [&](const Index* at) {
        const Run<T> g{grad + at[0], layout.run_stride(0)}, in{x + at[1], layout.run_stride(1)};
        sum_terms<T>(layout.run(), g.stride == 1 && in.stride == 1, sums,
                     [&](auto v, Index i, auto* s) {
                       using V = decltype(v);
                       const V e = g.template get<V>(i);
                       s[0] += e;
                       s[1] += e * (in.template get<V>(i) - m);
                     });
      });
      totals[c] = {sums[0], sums[1]};
    }
  });
}

template <class T>
void gradient(const View& grad, const View& x, const View& weight, const View& mean,
              const View& var, const View& x_grad, const View& weight_grad, const View& bias_grad,
              double eps) {
  const View* views[] = {&grad, &x, &x_grad};
  const Layout layout = layout_of(views, 3);
  const Index channels = layout.channels;
  const Scratch scratch(static_cast<std::size_t>(channels) * sizeof(GradientSums));
  const Scratch constants(static_cast<std::size_t>(4 * channels) * sizeof(T));
  GradientSums* sums = scratch.as<GradientSums>();
  T *center = constants.as<T>(), *scale = center + channels;
  T *offset = scale + channels, *slope = offset + channels;
  for (Index c = 0; c < channels; ++c) center[c] = element<T>(mean, c);
  const T *g = data_of<const T>(grad), *in = data_of<const T>(x);
  layout.rows ? sums_by_rows(layout, g, in, center, sums)
              : sums_by_runs(layout, g, in, center, sums);

  // x_grad = scale * (grad - offset - (x - mean) * slope)
  const double count = layout.leading.size > 0 ? double(layout.leading.size) : 1.0;
  for (Index c = 0; c < channels; ++c) {
    const double inverse = 1.0 / std::sqrt(double(element<T>(var, c)) + eps);
    scale[c] = T(double(element<T>(weight, c)) * inverse);
    offset[c] = T(sums[c].grad / count);
    slope[c] = T(sums[c].product * inverse * inverse / count);
    const bool empty = layout.leading.size == 0;  // sums of nothing, whatever var is
    data_of<T>(weight_grad)[c * weight_grad.strides[0]] =
        empty ? T(0) : T(sums[c].product * inverse);
    data_of<T>(bias_grad)[c * bias_grad.strides[0]] = T(sums[c].grad);
  }
  T* to = data_of<T>(x_grad);
  const Index n = layout.run();
  const Index g_stride = layout.run_stride(0), x_stride = layout.run_stride(1);
  const Index to_stride = layout.run_stride(2);
  apply<T>(
      layout,
      [&](const Index* at) {
        const T *ge = g + at[0], *xe = in + at[1];
        T* result = to + at[2];
        for (Index c = 0; c < channels; ++c) {
          result[c] = scale[c] * (ge[c] - offset[c] - (xe[c] - center[c]) * slope[c]);
        }
      },
      [&](Index c, const Index* at) {
        const T *ge = g + at[0], *xe = in + at[1];
        T* result = to + at[2];
        const T s = scale[c], o = offset[c], m = center[c], l = slope[c];
        if (g_stride == 1 && x_stride == 1 && to_stride == 1) {
          for (Index i = 0; i < n; ++i) result[i] = s * (ge[i] - o - (xe[i] - m) * l);
        } else {
          for (Index i = 0; i < n; ++i) {
            result[i * to_stride] = s * (ge[i * g_stride] - o - (xe[i * x_stride] - m) * l);
          }
        }
      });
}

}  // namespace

void batch_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps) {
  with_float(x.dtype, [&](auto tag) {
    normalize<typename decltype(tag)::type>(x, weight, bias, out, mean, var, eps);
  });
}

void batch_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double eps) {
  with_float(x.dtype, [&](auto tag) {
    gradient<typename decltype(tag)::type>(grad, x, weight, mean, var, x_grad, weight_grad,
                                           bias_grad, eps);
  });
}

}  // namespace needle::cpu::NEEDLE_ISA
