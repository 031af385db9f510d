#include "module_parts.h"

#include "bind_backend.h"
#include "cpu/select.h"

namespace needle::bindings {

static void take(Arguments& from, cpu::ImageShape& x) {
  Arguments items = from.next_items(4, "a shape of four ints");
  take_all(items, x.n, x.h, x.w, x.c);
}

namespace {

void check_prepared(const char* function, const View& weights) {
  NEEDLE_CHECK(weights.ndim == 1 && weights.dtype == DType::kFloat32 && is_compact(weights),
               std::string(function) +
                   ": prepared weights must be a compact float32 vector; "
                   "prepare_conv2d makes them");
}

PyObject* prepared_size(Arguments& from) {
  cpu::ImageShape x, weight;
  Geometry geometry;
  take_all(from, x, weight, geometry);
  return PyLong_FromLongLong(cpu::selected_prepared_conv2d().size(x, weight, geometry));
}

void check_prepare(In weight, Out out, const cpu::ImageShape&, const Geometry&) {
  check_prepared("prepare_conv2d", out);
  NEEDLE_CHECK(weight.ndim == 4 && weight.dtype == DType::kFloat32,
               "prepare_conv2d: weight must be float32 with four axes, (KH, KW, C, O)");
}

struct Prepare final : CallOf<decltype(&check_prepare)> {
  explicit Prepare(Arguments& from)
      : CallOf(from, check_prepare, [] { return cpu::selected_prepared_conv2d().prepare; }) {}
};

void check_run(In x, In weight, In prepared, Out out, const Geometry& geometry,
               const Epilogue& epilogue) {
  kernel_rules().conv2d(x, weight, out, geometry, epilogue);
  check_prepared("conv2d_prepared", prepared);
  NEEDLE_CHECK(x.dtype == DType::kFloat32, "conv2d_prepared: x must be float32; use conv2d");
}

struct RunPrepared final : CallOf<decltype(&check_run)> {
  explicit RunPrepared(Arguments& from)
      : CallOf(from, check_run, [] { return cpu::selected_prepared_conv2d().run; }) {}
};

}  // namespace

void bind_prepared_conv2d(PyObject* module) {
  Function<&prepared_size>::bind(module, "prepared_conv2d_size",
                                 "(Shape x_shape, Shape weight_shape, Geometry geometry)");
  bind_kernel<Prepare>(module, "prepare_conv2d",
                       "(In weight, Out out, Shape x_shape, Geometry geometry)");
  bind_kernel<RunPrepared>(
      module, "conv2d_prepared",
      "(In x, In weight, In prepared, Out out, Geometry geometry, Epilogue epilogue)");
}

}  // namespace needle::bindings
