// The Python module ndarray_backend_cpu. It has one function per row of the kernel table, the Array
// type, transfers to and from NumPy, and services (memory, threads, instruction sets).
// needle.backends.native wraps it in a Backend.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "bind_backend.h"
#include "core/thread_pool.h"
#include "cpu/allocator.h"
#include "cpu/caches.h"
#include "cpu/conv2d_algorithm.h"
#include "cpu/select.h"
#include "module_functions.h"
#include "module_parts.h"

namespace py = pybind11;

namespace needle::bindings {

const ArrayMemory array_memory = {
    "needle.backend_ndarray.ndarray_backend_cpu.Array",
    "Array(size, dtype='float32'): a buffer of the CPU device; its contents start undefined.",
    true,
    [](std::size_t bytes, int) { return cpu::allocate(bytes); },
    [](void* data, std::size_t bytes, int) { cpu::release(data, bytes); },
};

const KernelTable& module_table() { return cpu::selected_table(); }

namespace {

constexpr int kTile = 8;

py::dtype numpy_dtype(DType dtype) { return py::dtype(name_of(dtype)); }

// Returns a View of a NumPy array's memory, or nothing if a View cannot describe it, for example
// because a stride is not a multiple of the element size.
std::optional<View> view_of(const py::array& source) {
  if (!source.dtype().attr("isnative").cast<bool>()) return std::nullopt;
  View v;
  v.dtype = dtype_from_python(source.dtype().ptr());
  v.ndim = static_cast<int>(source.ndim());
  v.data = const_cast<void*>(source.data());
  const py::ssize_t item = source.itemsize();
  if (v.ndim > kMaxDims) return std::nullopt;
  if (reinterpret_cast<std::uintptr_t>(v.data) % item != 0) return std::nullopt;
  for (int i = 0; i < v.ndim; ++i) {
    if (source.strides(i) % item != 0) return std::nullopt;
    v.shape[i] = source.shape(i);
    v.strides[i] = source.strides(i) / item;
  }
  return v;
}

void upload(py::array source, py::handle target) {
  const View out = to_view("upload", target.ptr());
  std::optional<View> from = view_of(source);
  if (!from) {  // NumPy converts other byte orders and packed fields
    source = py::module_::import("numpy").attr("ascontiguousarray")(source, numpy_dtype(out.dtype));
    from = view_of(source);
  }
  if (!from || from->dtype != out.dtype) {
    raise_error(std::string("upload: the source must have out's dtype, ") + name_of(out.dtype) +
                "; convert it first");
  }
  WithoutGil released;
  cpu::selected_table().copy(*from, out);
}

py::array download(py::handle source) {
  const View a = to_view("download", source.ptr());
  py::array result(numpy_dtype(a.dtype), std::vector<py::ssize_t>(a.shape, a.shape + a.ndim));
  const View out = *view_of(result);
  WithoutGil released;
  cpu::selected_table().copy(a, out);
  return result;
}

py::array export_view(py::handle source) {
  const View a = to_view("export", source.ptr());
  std::vector<py::ssize_t> shape(a.shape, a.shape + a.ndim), strides(a.strides, a.strides + a.ndim);
  for (py::ssize_t& stride : strides) stride *= static_cast<py::ssize_t>(size_of(a.dtype));
  const py::handle owner = PyTuple_GET_ITEM(source.ptr(), 0);
  return py::array(numpy_dtype(a.dtype), shape, strides, a.data, owner);
}

// Checks an operand of matmul_tiled, the course's tiled product, and returns its data. The shapes
// are a (m/T, n/T, T, T), b (n/T, p/T, T, T) and out (m/T, p/T, T, T), all contiguous.
float* tiled(const char* name, py::handle handle, std::int64_t rows, std::int64_t columns) {
  if (!is_array(handle.ptr())) raise(PyExc_TypeError, "matmul_tiled: operands must be Arrays");
  const auto* array = reinterpret_cast<ArrayObject*>(handle.ptr());
  if (rows < 0 || columns < 0 || rows % kTile != 0 || columns % kTile != 0 ||
      array->size != rows * columns || array->dtype != DType::kFloat32) {
    raise_error(std::string("matmul_tiled: ") + name + " must be float32 of whole " +
                std::to_string(kTile) + "x" + std::to_string(kTile) +
                " tiles; pad it, or use matmul");
  }
  return static_cast<float*>(array->data);
}

void multiply_tiles(const float* a, const float* b, float* out) {
  for (int i = 0; i < kTile; ++i) {
    for (int k = 0; k < kTile; ++k) {
      for (int j = 0; j < kTile; ++j) out[i * kTile + j] += a[i * kTile + k] * b[k * kTile + j];
    }
  }
}

void matmul_tiled(py::handle a, py::handle b, py::handle out, std::int64_t m, std::int64_t n,
                  std::int64_t p) {
  const float *x = tiled("a", a, m, n), *y = tiled("b", b, n, p);
  float* z = tiled("out", out, m, p);
  constexpr int area = kTile * kTile;
  const std::int64_t rows = m / kTile, inner = n / kTile, columns = p / kTile;
  WithoutGil released;
  parallel_for(rows, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::fill_n(z + i * columns * area, columns * area, 0.0f);
      for (std::int64_t k = 0; k < inner; ++k) {
        for (std::int64_t j = 0; j < columns; ++j) {
          multiply_tiles(x + (i * inner + k) * area, y + (k * columns + j) * area,
                         z + (i * columns + j) * area);
        }
      }
    }
  });
}

py::object adopt(const py::array& source) {
  return py::reinterpret_steal<py::object>(adopt_buffer(source.ptr()));
}

// Backend.allocate is called once for each result, so pybind11 would cost too much.
PyObject* allocate(Arguments& from) {
  std::int64_t size;
  take(from, size);
  return new_array(size, dtype_from_python(from.next()));
}

void bind_transfers(py::module_& m) {
  def(m, "upload", &upload, py::arg("source"), py::arg("out"),
      "Writes a host array into the view `out`.");
  def(m, "download", &download, py::arg("a"), "A new compact host array with the view's elements.");
  def(m, "adopt", &adopt, py::arg("source"),
      "An Array on a compact, writable host array's memory, or None.");
  def(m, "export", &export_view, py::arg("a"), "A host array on the view's memory, strides kept.");
  def(m, "matmul_tiled", &matmul_tiled, py::arg("a"), py::arg("b"), py::arg("out"), py::arg("m"),
      py::arg("n"), py::arg("p"),
      "out = a @ b on compact float32 buffers of __tile_size__ square tiles.");
}

// The algorithms' names in the order of Conv2dAlgorithm.
constexpr const char* kConv2dAlgorithms[] = {"auto", "direct", "winograd"};

void select_algorithm(const std::string& name) {
  const auto* const found = std::ranges::find(kConv2dAlgorithms, name);
  NEEDLE_CHECK(found != std::end(kConv2dAlgorithms),
               "select_conv2d: '" + name + "' is no algorithm; use auto, direct or winograd");
  select_conv2d_algorithm(static_cast<Conv2dAlgorithm>(found - kConv2dAlgorithms));
}

void bind_services(py::module_& m) {
  m.def(
      "memory_stats", [] { return dict_of(cpu::memory_stats()); },
      "Bytes in_use, cached, peak; counts allocations, reuses.");
  m.def("empty_cache", &cpu::empty_cache, "Gives cached buffers back to the system.");
  m.def("num_threads", &num_threads, "Threads that a kernel may use.");
  def(m, "set_num_threads", &set_num_threads, py::arg("n"),
      "Sets num_threads(), from the next kernel on.");
  m.def(
      "caches",
      [] {
        const Caches& c = caches();
        return py::dict(py::arg("line") = c.line, py::arg("l1") = c.l1,
                        py::arg("l1_ways") = c.l1_ways, py::arg("l2") = c.l2);
      },
      "Sizes in bytes of a core's data caches, and the ways of the first one; they decide the "
      "blocks of products.");
  m.def("available_isas", &cpu::available_isas,
        "Instruction sets that are compiled in and run here, worst first.");
  m.def(
      "select_isa",
      [m](const std::string& name) mutable {
        translated([&] { cpu::select_isa(name); });
        m.attr("isa") = name;
      },
      py::arg("name"), "Uses the kernels of one of available_isas() from now on.");
  def(m, "select_conv2d", &select_algorithm, py::arg("name"),
      "The algorithm of float32 3x3 convolutions of step 1 from now on: auto (by shape), direct or "
      "winograd.");
}

}  // namespace
}  // namespace needle::bindings

PYBIND11_MODULE(ndarray_backend_cpu, m) {
  using namespace needle::bindings;
  m.doc() = "needle's CPU kernels; needle.backends.native makes a Backend of this module.";
  m.attr("__device_name__") = "cpu";
  m.attr("__tile_size__") = kTile;
  m.attr("isa") = needle::cpu::selected_table().isa;
  m.attr("Array") = pybind11::handle(reinterpret_cast<PyObject*>(array_type()));
  bind_transfers(m);
  bind_services(m);
  bind_data(m);
  try {
    Function<&allocate>::bind(m.ptr(), "allocate", "(std::int64_t size, DType dtype)");
    bind_backend(m.ptr());
    bind_prepared_conv2d(m.ptr());
  } catch (const PythonError&) {
    throw pybind11::error_already_set();
  }
}
