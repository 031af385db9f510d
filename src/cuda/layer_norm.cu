// layer_norm and its gradient. A warp (a block if rows are long) processes a row of the last
// dimension: one pass computes its moments about the mean of its first elements, a second one
// writes the result while the row is in the cache. The gradients of weight and bias are sums over
// rows for each column: threads walk down the columns (channel_rows.h).
#include <cmath>
#include <limits>

#include "channel_rows.h"
#include "core/scalar_math.h"
#include "kernels.h"
#include "rows.h"

namespace needle::cuda {
namespace {

struct Rows {
  Walk rows;  // all axes but the last
  std::uint32_t n;
  std::int64_t steps[kMaxOperands];  // along a row, in elements

  template <class T, int kOperands>
  __device__ Row<T> row(int operand, const Offsets<kOperands>& offsets) const {
    return {reinterpret_cast<T*>(rows.data[operand] + offsets.bytes[operand]), steps[operand], n};
  }
  template <class T, int kOperands>
  __device__ T& value(int operand, const Offsets<kOperands>& offsets) const {
    return *reinterpret_cast<T*>(rows.data[operand] + offsets.bytes[operand]);
  }
};

// Returns the views without their last axis; the first view decides the order of rows.
template <class... Views>
Rows rows_of(const char* op, const View& first, const Views&... others) {
  const int last = first.ndim - 1;
  const LoopPlan plan = make_plan(without_axis(first, last), without_axis(others, last)...);
  check_count(op, plan.size);
  check_count(op, first.shape[last]);
  const View* views[] = {&first, &others...};
  return {make_walk(plan, views),
          static_cast<std::uint32_t>(first.shape[last]),
          {first.strides[last], others.strides[last]...}};
}

// Operands: out, x, mean, var.
template <class T, int kLanes>
__global__ void __launch_bounds__(kRowThreads)
    layer_norm_kernel(const __grid_constant__ Rows r,
                      const __grid_constant__ Vector<const T> weight,
                      const __grid_constant__ Vector<const T> bias, const double eps) {
  NEEDLE_SHARED(warps, T[kRowThreads / kWarp]);
  const RowLanes<T, kLanes> lanes(warps);
  if (lanes.row >= r.rows.size) return;
  const auto offsets = locate<4>(r.rows, lanes.row);
  const Row<T> out = r.row<T>(0, offsets);
  const Row<const T> x = r.row<const T>(1, offsets);
  /// BEGIN SOLUTION [cuda-layer-norm]
  const std::uint32_t count = std::min<std::uint32_t>(r.n, kLanes);
  const T center = lanes.sum(lanes.lane < count ? x[lanes.lane] : T(0)) / T(count);
  T sum = T(0), squares = T(0);
  stream<T>(
      lanes.lane, r.n, kLanes, [&](std::uint32_t i) { return x[i] - center; },
      [&](std::uint32_t, T deviation) {
        sum += deviation;
        squares += deviation * deviation;
      });
  const T shift = lanes.sum(sum) / T(r.n);  // the mean is center + shift, not rounded
  const T var = math::maximum(T(0), lanes.sum(squares) / T(r.n) - shift * shift);
  const T scale = T(1) / std::sqrt(var + T(eps));
  const auto normal = [&](std::uint32_t i) {
    return ((x[i] - center) - shift) * scale * weight[i] + bias[i];
  };
  stream<T>(lanes.lane, r.n, kLanes, normal, [&](std::uint32_t i, T value) { out[i] = value; });
  if (lanes.lane == 0) r.value<T>(2, offsets) = center + shift, r.value<T>(3, offsets) = var;
  /// END SOLUTION
}

// The operands of `r` are x_grad, grad and x; those of `s` are x_grad, mean and var. Computes
// x_grad = scale * (g w - mean(g w) - normal * mean(g w normal)).
template <class T, int kLanes>
__global__ void __launch_bounds__(kRowThreads)
    layer_norm_input_grad_kernel(const __grid_constant__ Rows r, const __grid_constant__ Rows s,
                                 const __grid_constant__ Vector<const T> weight, const double eps) {
  NEEDLE_SHARED(warps, T[kRowThreads / kWarp]);
  const RowLanes<T, kLanes> lanes(warps);
  if (lanes.row >= r.rows.size) return;
  const auto offsets = locate<3>(r.rows, lanes.row), statistics = locate<3>(s.rows, lanes.row);
  const Row<T> x_grad = r.row<T>(0, offsets);
  const Row<const T> grad = r.row<const T>(1, offsets), x = r.row<const T>(2, offsets);
  const T mean = s.value<const T>(1, statistics);
  const T scale = T(1) / std::sqrt(s.value<const T>(2, statistics) + T(eps));
  T sum = T(0), product = T(0);
  struct Loaded {
    T grad, normal;
  };
  const auto load = [&](std::uint32_t i) {
    return Loaded{grad[i] * weight[i], (x[i] - mean) * scale};
  };
  stream<T>(lanes.lane, r.n, kLanes, load, [&](std::uint32_t, const Loaded& loaded) {
    sum += loaded.grad;
    product += loaded.grad * loaded.normal;
  });
  const T offset = lanes.sum(sum) / T(r.n), slope = lanes.sum(product) / T(r.n);
  stream<T>(lanes.lane, r.n, kLanes, load, [&](std::uint32_t i, const Loaded& loaded) {
    x_grad[i] = scale * (loaded.grad - offset - loaded.normal * slope);
  });
}

// Operands: x, grad, mean, var.
template <class T>
__global__ void __launch_bounds__(kChannelThreads)
    layer_norm_weight_grad_kernel(const __grid_constant__ Rows r,
                                  const __grid_constant__ ChannelTiles t, const double eps,
                                  const __grid_constant__ Vector<T> weight_grad,
                                  const __grid_constant__ Vector<T> bias_grad, Sums* parts) {
  const ChannelThread my(t);
  T products = T(0), grads = T(0);
  struct Loaded {
    T x, grad, mean, var;
  };
  const auto load = [&](std::uint32_t i) {
    const auto offsets = locate<4>(r.rows, i);
    return Loaded{r.row<const T>(0, offsets)[my.channel], r.row<const T>(1, offsets)[my.channel],
                  r.value<const T>(2, offsets), r.value<const T>(3, offsets)};
  };
  stream<T>(my.first, my.end, my.step, load, [&](std::uint32_t, const Loaded& loaded) {
    const T scale = T(1) / std::sqrt(loaded.var + T(eps));
    products += loaded.grad * ((loaded.x - loaded.mean) * scale);
    grads += loaded.grad;
  });
  Sums total = {double(products), double(grads)};
  if (add_up(total, parts, t, my)) {
    weight_grad[my.channel] = T(total.first);
    bias_grad[my.channel] = T(total.second);
  }
}

template <class T>
void gradient(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad, Out bias_grad,
              double eps) {
  const char* op = "layer_norm_grad";
  if (size_of(x) == 0) {
    for (const View* empty : {&weight_grad, &bias_grad}) fill(*empty, 0.0, 0);
    return;
  }
  const Rows rows = rows_of(op, x_grad, grad, x), statistics = rows_of(op, x_grad, mean, var);
  launch_rows(op, x.device, rows.rows.size, rows.n, layer_norm_input_grad_kernel<T, kWarp>,
              layer_norm_input_grad_kernel<T, kRowThreads>, rows, statistics,
              Vector<const T>(weight), eps);
  const Rows columns = rows_of(op, x, grad, mean, var);
  const bool neighbours = columns.n > 1 && columns.steps[0] == 1 && columns.steps[1] == 1;
  const ChannelTiles tiles = tiles_of(op, columns.rows.size, columns.n, neighbours, true);
  const Temporary parts(tiles.chunks * std::size_t(tiles.channels) * sizeof(Sums), x.device);
  launch(op, x.device, {tiles.blocks()}, {kChannelThreads}, layer_norm_weight_grad_kernel<T>,
         columns, tiles, eps, Vector<T>(weight_grad), Vector<T>(bias_grad), parts.as<Sums>());
}

}  // namespace

void layer_norm(In x, In weight, In bias, Out out, Out mean, Out var, double eps) {
  if (size_of(x) == 0) {
    const double none = std::numeric_limits<double>::quiet_NaN();
    for (const View* statistic : {&mean, &var}) fill(*statistic, none, 0);
    return;
  }
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    const Rows rows = rows_of("layer_norm", out, x, mean, var);
    launch_rows("layer_norm", x.device, rows.rows.size, rows.n, layer_norm_kernel<T, kWarp>,
                layer_norm_kernel<T, kRowThreads>, rows, Vector<const T>(weight),
                Vector<const T>(bias), eps);
  });
}

void layer_norm_grad(In grad, In x, In weight, In mean, In var, Out x_grad, Out weight_grad,
                     Out bias_grad, double eps) {
  with_float(x.dtype, [&]<class T>(Tag<T>) {
    gradient<T>(grad, x, weight, mean, var, x_grad, weight_grad, bias_grad, eps);
  });
}

}  // namespace needle::cuda
