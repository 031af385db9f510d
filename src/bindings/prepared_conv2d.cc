#include "prepared_conv2d.h"

#include "bind_backend.h"
#include "cpu/select.h"

namespace needle::bindings {

template <>
struct Caster<const cpu::ImageShape&> {
  cpu::ImageShape value;
  explicit Caster(Arguments& from) {
    PyObject* shape = from.next();
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) != 4) {
      raise(PyExc_TypeError, std::string(from.function) + ": a shape must be a tuple of four ints");
    }
    const auto length = [&](int axis) {
      return to_int(from.function, PyTuple_GET_ITEM(shape, axis));
    };
    value = {length(0), length(1), length(2), length(3)};
  }
};

namespace {

void check_prepared(const char* function, const View& weights) {
  NEEDLE_CHECK(weights.ndim == 1 && weights.dtype == DType::kFloat32 && is_compact(weights),
               std::string(function) +
                   ": prepared weights must be a compact float32 vector; "
                   "prepare_conv2d makes them");
}

PyObject* prepared_size(Arguments& from) {
  const cpu::ImageShape x = Caster<const cpu::ImageShape&>(from).value;
  const cpu::ImageShape weight = Caster<const cpu::ImageShape&>(from).value;
  const Geometry geometry = Caster<const Geometry&>(from).value;
  return PyLong_FromLongLong(cpu::selected_prepared_conv2d().size(x, weight, geometry));
}

PyObject* prepare(Arguments& from) {
  const View weight = from.next_view(), out = from.next_view();
  const cpu::ImageShape x = Caster<const cpu::ImageShape&>(from).value;
  const Geometry geometry = Caster<const Geometry&>(from).value;
  check_prepared(from.function, out);
  NEEDLE_CHECK(weight.ndim == 4 && weight.dtype == DType::kFloat32,
               "prepare_conv2d: weight must be float32 with four axes, (KH, KW, C, O)");
  {
    WithoutGil released;
    cpu::selected_prepared_conv2d().prepare(weight, out, x, geometry);
  }
  Py_RETURN_NONE;
}

PyObject* run_prepared(Arguments& from) {
  const View x = from.next_view(), weight = from.next_view(), prepared = from.next_view();
  const View out = from.next_view();
  const Geometry geometry = Caster<const Geometry&>(from).value;
  const Caster<const Epilogue&> epilogue(from);
  kernel_rules().conv2d(x, weight, out, geometry, epilogue.value);
  check_prepared(from.function, prepared);
  NEEDLE_CHECK(x.dtype == DType::kFloat32, "conv2d_prepared: x must be float32; use conv2d");
  {
    WithoutGil released;
    cpu::selected_prepared_conv2d().run(x, weight, prepared, out, geometry, epilogue.value);
  }
  Py_RETURN_NONE;
}

}  // namespace

void bind_prepared_conv2d(PyObject* module) {
  Function<&prepared_size>::bind(module, "prepared_conv2d_size",
                                 "(Shape x_shape, Shape weight_shape, Geometry geometry)");
  Function<&prepare>::bind(module, "prepare_conv2d",
                           "(In weight, Out out, Shape x_shape, Geometry geometry)");
  Function<&run_prepared>::bind(
      module, "conv2d_prepared",
      "(In x, In weight, In prepared, Out out, Geometry geometry, Epilogue epilogue)");
}

}  // namespace needle::bindings
