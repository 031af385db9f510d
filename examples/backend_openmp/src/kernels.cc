// The ten functions of the device openmp: one loop each, whose elements are divided among OpenMP
// threads. A single thread computes each element, in a fixed order, so results do not depend on the
// number of threads.

#include "view.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace {

constexpr Size kSerial = 4096;  // fewer elements run on one thread

// ---- formulas -----------------------------------------------------------------------------------
// Integers are computed as unsigned, for which wrap-around is defined.

template <class T>
constexpr bool kFloat = std::is_floating_point_v<T>;

template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<std::int32_t> {
  using type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using type = std::uint64_t;
};
template <class T>
using U = typename Wrapping<T>::type;

template <class T>
T sign(T x) {
  if constexpr (kFloat<T>) {
    if (x != x) return x;
  }
  return static_cast<T>((x > T(0)) - (x < T(0)));
}

template <class T>
T invert(T x) {
  if constexpr (std::is_same_v<T, bool>) {
    return !x;
  } else {
    return static_cast<T>(~static_cast<U<T>>(x));
  }
}

template <class T>
T magnitude(T x) {
  if constexpr (kFloat<T>) {
    return std::fabs(x);
  } else {
    return x < T(0) ? static_cast<T>(U<T>(0) - U<T>(x)) : x;
  }
}

template <class T>
T floor_divide(T x, T y) {
  if constexpr (kFloat<T>) {
    if (y == 0) return x / y;
    const T rest = std::fmod(x, y);
    T quotient = (x - rest) / y;
    if (rest != 0 && (rest < 0) != (y < 0)) quotient -= 1;
    const T down = std::floor(quotient);
    return quotient - down > T(0.5) ? down + 1 : down;
  } else {
    if (y == 0) return 0;
    if (std::is_signed_v<T> && y == T(-1)) return static_cast<T>(U<T>(0) - static_cast<U<T>>(x));
    return static_cast<T>(x / y - (x % y != 0 && (x < 0) != (y < 0)));
  }
}

// Not named remainder, because the C library has another function of that name.
template <class T>
T modulo(T x, T y) {
  T rest;
  if constexpr (kFloat<T>) {
    rest = std::fmod(x, y);
    if (rest == 0) return std::copysign(T(0), y);  // as NumPy and Python
  } else {
    if (y == 0 || (std::is_signed_v<T> && y == T(-1))) return 0;
    rest = static_cast<T>(x % y);
  }
  return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
}

template <class T>
T power(T x, T y) {
  if constexpr (kFloat<T>) {
    return std::pow(x, y);
  } else {
    if (y < 0) {  // the truncated value: 0, except for 1 and -1
      return x == 1 ? T(1) : x == T(-1) ? static_cast<T>(y % 2 ? -1 : 1) : T(0);
    }
    U<T> result = 1;
    for (U<T> base = static_cast<U<T>>(x); y > 0; y = static_cast<T>(y / 2)) {
      if (y % 2) result = static_cast<U<T>>(result * base);
      base = static_cast<U<T>>(base * base);
    }
    return static_cast<T>(result);
  }
}

template <class T>
T maximum(T x, T y) {
  return x != x ? x : y != y ? y : x < y ? y : x;
}

template <class T>
T minimum(T x, T y) {
  return x != x ? x : y != y ? y : y < x ? y : x;
}

//  ROW(name, type of the result, formula)
#define UNARY_FLOAT(ROW)          \
  ROW(exp, T, std::exp(x))        \
  ROW(expm1, T, std::expm1(x))    \
  ROW(log, T, std::log(x))        \
  ROW(log1p, T, std::log1p(x))    \
  ROW(log2, T, std::log2(x))      \
  ROW(log10, T, std::log10(x))    \
  ROW(sqrt, T, std::sqrt(x))      \
  ROW(sin, T, std::sin(x))        \
  ROW(cos, T, std::cos(x))        \
  ROW(tan, T, std::tan(x))        \
  ROW(asin, T, std::asin(x))      \
  ROW(acos, T, std::acos(x))      \
  ROW(atan, T, std::atan(x))      \
  ROW(sinh, T, std::sinh(x))      \
  ROW(cosh, T, std::cosh(x))      \
  ROW(tanh, T, std::tanh(x))      \
  ROW(asinh, T, std::asinh(x))    \
  ROW(acosh, T, std::acosh(x))    \
  ROW(atanh, T, std::atanh(x))    \
  ROW(erf, T, std::erf(x))        \
  ROW(floor, T, std::floor(x))    \
  ROW(ceil, T, std::ceil(x))      \
  ROW(trunc, T, std::trunc(x))    \
  ROW(round, T, std::rint(x))     \
  ROW(isnan, bool, std::isnan(x)) \
  ROW(isinf, bool, std::isinf(x)) \
  ROW(isfinite, bool, std::isfinite(x))
#define UNARY_NUMBER(ROW)                                                 \
  ROW(negative, T, static_cast<T>(kFloat<T> ? -x : T(U<T>(0) - U<T>(x)))) \
  ROW(abs, T, magnitude(x))                                               \
  ROW(sign, T, sign(x))                                                   \
  ROW(square, T, static_cast<T>(U<T>(x) * U<T>(x)))
#define UNARY_ANY(ROW) ROW(logical_not, bool, x == T(0))
#define UNARY_INTEGER(ROW) ROW(bitwise_invert, T, invert(x))

#define BINARY_NUMBER(ROW)                            \
  ROW(add, T, static_cast<T>(U<T>(x) + U<T>(y)))      \
  ROW(subtract, T, static_cast<T>(U<T>(x) - U<T>(y))) \
  ROW(multiply, T, static_cast<T>(U<T>(x) * U<T>(y))) \
  ROW(floor_divide, T, floor_divide(x, y))            \
  ROW(remainder, T, modulo(x, y))                     \
  ROW(power, T, power(x, y))                          \
  ROW(maximum, T, maximum(x, y))                      \
  ROW(minimum, T, minimum(x, y))
#define BINARY_FLOAT(ROW) \
  ROW(divide, T, x / y)   \
  ROW(atan2, T, std::atan2(x, y))
#define BINARY_INTEGER(ROW)                  \
  ROW(bitwise_and, T, static_cast<T>(x & y)) \
  ROW(bitwise_or, T, static_cast<T>(x | y))  \
  ROW(bitwise_xor, T, static_cast<T>(x ^ y))
#define BINARY_ANY(ROW)                              \
  ROW(logical_and, bool, (x != T(0)) && (y != T(0))) \
  ROW(logical_or, bool, (x != T(0)) || (y != T(0)))  \
  ROW(logical_xor, bool, (x != T(0)) != (y != T(0))) \
  ROW(equal, bool, x == y)                           \
  ROW(not_equal, bool, x != y)                       \
  ROW(less, bool, x < y)                             \
  ROW(less_equal, bool, x <= y)                      \
  ROW(greater, bool, x > y)                          \
  ROW(greater_equal, bool, x >= y)

// ---- loops --------------------------------------------------------------------------------------

// Calls f(index of the first element, number of elements) for every run along the last axis.
template <class F>
void for_runs(const View& out, F f) {
  /// BEGIN SOLUTION [openmp-map]
  const Size n = out.count(), length = out.shape.empty() ? 1 : out.shape.back();
  if (n == 0) return;  // the step of an OpenMP loop must not be 0
#pragma omp parallel for if (n > kSerial && n > length)
  for (Size start = 0; start < n; start += length) f(start, length);
  /// END SOLUTION
}

template <class T, class R, class F>
void map(const View& a, const View& out, F formula) {
  /// BEGIN SOLUTION [openmp-map]
  const Size dx = a.step(), dy = out.step();
  for_runs(out, [&](Size start, Size length) {
    const T* x = a.as<T>() + a.place(start);
    R* y = out.as<R>() + out.place(start);
    for (Size i = 0; i < length; ++i) y[i * dy] = formula(x[i * dx]);
  });
  /// END SOLUTION
}

template <class T, class R, class F>
void map(const View& a, const View& b, const View& out, F formula) {
  /// BEGIN SOLUTION [openmp-binary]
  const Size dx = a.step(), dy = b.step(), dz = out.step();
  for_runs(out, [&](Size start, Size length) {
    const T *x = a.as<T>() + a.place(start), *y = b.as<T>() + b.place(start);
    R* z = out.as<R>() + out.place(start);
    for (Size i = 0; i < length; ++i) z[i * dz] = formula(x[i * dx], y[i * dy]);
  });
  /// END SOLUTION
}

// Returns an operand as a view; a number becomes a constant view, stored in `storage`.
View viewed(const Operand& operand, DType dtype, const View& out, std::int64_t& storage) {
  if (const View* view = std::get_if<View>(&operand)) return *view;
  dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    const T value = std::get<Number>(operand).as<T>();
    std::memcpy(&storage, &value, sizeof(value));
  });
  return View(&storage, dtype, out.shape, std::vector<Size>(out.shape.size(), 0));
}

// Returns row-major memory with the shape and dtype of `like`.
View compact_view(void* data, const View& like) {
  std::vector<Size> strides(like.shape.size());
  Size step = 1;
  for (std::size_t axis = strides.size(); axis-- > 0; step *= like.shape[axis])
    strides[axis] = step;
  return View(data, like.dtype, like.shape, strides);
}

// Returns a view of the elements that are reduced to one element of `out`.
View reduced_part(const View& a, const View& out) {
  std::vector<Size> shape, strides;
  for (std::size_t axis = 0; axis < a.shape.size(); ++axis) {
    if (out.shape[axis] != 1) continue;
    shape.push_back(a.shape[axis]);
    strides.push_back(a.strides[axis]);
  }
  return View(a.data, a.dtype, std::move(shape), std::move(strides));
}

template <class T, class Sum, class F>
void fold(const View& a, const View& out, bool starts_with_first, Sum first, F step) {
  /// BEGIN SOLUTION [openmp-reduce]
  const View part = reduced_part(a, out), heads(a.data, a.dtype, out.shape, a.strides);
  const Size n = out.count(), length = part.count(), along = part.step();
  const Size run = part.shape.empty() ? 1 : part.shape.back();
  T* results = out.as<T>();
#pragma omp parallel for if (n > 1 && n * length > kSerial)
  for (Size j = 0; j < n; ++j) {
    const T* x = a.as<T>() + heads.place(j);
    Sum total = starts_with_first ? static_cast<Sum>(*x) : first;
    for (Size start = 0; start < length; start += run) {
      const T* each = x + part.place(start);
      const Size skip = starts_with_first && start == 0;
      for (Size k = skip; k < run; ++k) total = step(total, each[k * along]);
    }
    results[out.place(j)] = static_cast<T>(total);
  }
  /// END SOLUTION
}

[[noreturn]] void unknown(const char* function, const std::string& name) {
  throw std::invalid_argument(std::string(function) + ": no function of this dtype is called " +
                              name);
}

}  // namespace

// ---- the ten ------------------------------------------------------------------------------------

std::unique_ptr<Buffer> allocate(Size size, DType dtype) {
  return std::make_unique<Buffer>(size, dtype);
}

void copy(const View& a, const View& out) {
  /// BEGIN SOLUTION [openmp-map]
  dispatch(a.dtype, [&](auto from) {
    dispatch(out.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      map<From, To>(a, out, [](From x) -> To {
        if constexpr (std::is_same_v<To, bool>) return x != From(0);
        return static_cast<To>(x);
      });
    });
  });
  /// END SOLUTION
}

void upload(const py::array& source, const View& out) {
  const auto compact = py::array::ensure(source, py::array::c_style);
  copy(compact_view(const_cast<void*>(compact.data()), out), out);
}

py::array download(const View& a) {
  static constexpr const char* kNames[] = {"bool", "uint8", "int32", "int64", "float32", "float64"};
  py::array result(py::dtype(kNames[static_cast<int>(a.dtype)]), a.shape);
  copy(a, compact_view(result.mutable_data(), a));
  return result;
}

void fill(const View& out, Number value) {
  /// BEGIN SOLUTION [openmp-fill]
  dispatch(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T element = value.as<T>();
    map<T, T>(out, out, [element](T) { return element; });
  });
  /// END SOLUTION
}

void unary(const std::string& name, const View& a, const View& out) {
  dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
#define ROW(row, R, formula) \
  if (name == #row) return map<T, R>(a, out, [](T x) -> R { return formula; });
    UNARY_ANY(ROW)
    if constexpr (kFloat<T>) {
      UNARY_FLOAT(ROW)
    }
    if constexpr (!std::is_same_v<T, bool>) {
      UNARY_NUMBER(ROW)
    }
    if constexpr (!kFloat<T>) {
      UNARY_INTEGER(ROW)
    }
#undef ROW
    unknown("unary", name);
  });
}

void binary(const std::string& name, const Operand& a, const Operand& b, const View& out) {
  const View& given = std::holds_alternative<View>(a) ? std::get<View>(a) : std::get<View>(b);
  std::int64_t left_storage = 0, right_storage = 0;
  const View left = viewed(a, given.dtype, out, left_storage);
  const View right = viewed(b, given.dtype, out, right_storage);
  dispatch(given.dtype, [&](auto zero) {
    using T = decltype(zero);
#define ROW(row, R, formula) \
  if (name == #row) return map<T, R>(left, right, out, [](T x, T y) -> R { return formula; });
    BINARY_ANY(ROW)
    if constexpr (!std::is_same_v<T, bool>) {
      BINARY_NUMBER(ROW)
    }
    if constexpr (kFloat<T>) {
      BINARY_FLOAT(ROW)
    }
    if constexpr (!kFloat<T>) {
      BINARY_INTEGER(ROW)
    }
#undef ROW
    unknown("binary", name);
  });
}

void where(const View& condition, const Operand& a, const Operand& b, const View& out) {
  /// BEGIN SOLUTION [openmp-where]
  std::int64_t left_storage = 0, right_storage = 0;
  const View left = viewed(a, out.dtype, out, left_storage);
  const View right = viewed(b, out.dtype, out, right_storage);
  dispatch(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Size dc = condition.step(), dx = left.step(), dy = right.step(), dz = out.step();
    for_runs(out, [&](Size start, Size length) {
      const bool* pick = condition.as<bool>() + condition.place(start);
      const T *x = left.as<T>() + left.place(start), *y = right.as<T>() + right.place(start);
      T* z = out.as<T>() + out.place(start);
      for (Size i = 0; i < length; ++i) z[i * dz] = pick[i * dc] ? x[i * dx] : y[i * dy];
    });
  });
  /// END SOLUTION
}

void reduce(const std::string& name, const View& a, const View& out) {
  dispatch(a.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (std::is_same_v<T, bool>) {
      if (name == "any")
        return fold<T>(a, out, false, false, [](bool s, bool x) { return s || x; });
      if (name == "all") return fold<T>(a, out, false, true, [](bool s, bool x) { return s && x; });
    } else {
      using Sum = std::conditional_t<kFloat<T>, double, U<T>>;  // float32 is summed in double
      const auto add = [](Sum s, T x) -> Sum { return s + static_cast<Sum>(x); };
      const auto multiply = [](Sum s, T x) -> Sum { return s * static_cast<Sum>(x); };
      if (name == "sum") return fold<T>(a, out, false, Sum(0), add);
      if (name == "prod") return fold<T>(a, out, false, Sum(1), multiply);
      if (name == "max") return fold<T>(a, out, true, T(0), maximum<T>);
      if (name == "min") return fold<T>(a, out, true, T(0), minimum<T>);
    }
    unknown("reduce", name);
  });
}

void matmul(const View& a, const View& b, const View& out) {
  /// BEGIN SOLUTION [openmp-matmul]
  const std::size_t axes = out.shape.size();
  const Size m = out.shape[axes - 2], n = out.shape[axes - 1], depth = a.shape[axes - 1];
  const Size rows = out.count() / (n ? n : 1), up = b.strides[axes - 2],
             along = b.strides[axes - 1];
  // Drops the last axes, so that place(i) is the start of row (or matrix) i.
  const auto heads = [](const View& view, std::size_t count) {
    return View(view.data, view.dtype, {view.shape.begin(), view.shape.begin() + count},
                {view.strides.begin(), view.strides.begin() + count});
  };
  const View left = heads(a, axes - 1), right = heads(b, axes - 2), results = heads(out, axes - 1);
  dispatch(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Sum = std::conditional_t<std::is_same_v<T, bool>, int, U<T>>;
#pragma omp parallel for if (rows * n * depth > kSerial)
    for (Size row = 0; row < rows; ++row) {
      const T* x = a.as<T>() + left.place(row);
      const T* matrix = b.as<T>() + right.place(row / m);
      std::vector<Sum> sums(n, Sum(0));
      for (Size k = 0; k < depth; ++k) {
        const Sum factor = static_cast<Sum>(x[k * a.strides[axes - 1]]);
        const T* y = matrix + k * up;
        if (along == 1) {
          for (Size j = 0; j < n; ++j) sums[j] += factor * static_cast<Sum>(y[j]);
        } else {
          for (Size j = 0; j < n; ++j) sums[j] += factor * static_cast<Sum>(y[j * along]);
        }
      }
      T* z = out.as<T>() + results.place(row);
      for (Size j = 0; j < n; ++j) z[j * out.strides[axes - 1]] = static_cast<T>(sums[j]);
    }
  });
  /// END SOLUTION
}

PYBIND11_MODULE(_kernels, module) {
  using Unlocked = py::call_guard<py::gil_scoped_release>;  // lets other Python threads run
  module.attr("__device_name__") = "openmp";
  // dynamic_attr: needle sets the attributes `written` and `shared` of a handle.
  py::class_<Buffer>(module, "Buffer", py::dynamic_attr()).def_readonly("size", &Buffer::size);
  module.def("allocate", allocate);
  module.def("upload", upload);
  module.def("download", download);
  module.def("fill", fill, Unlocked());
  module.def("copy", copy, Unlocked());
  module.def("unary", unary, Unlocked());
  module.def("binary", binary, Unlocked());
  module.def("where", where, Unlocked());
  module.def("reduce", reduce, Unlocked());
  module.def("matmul", matmul, Unlocked());
}
