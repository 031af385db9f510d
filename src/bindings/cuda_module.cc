// The Python module ndarray_backend_cuda. It has one function per row of the kernel table, the
// Array type, transfers and services. needle.backends.cuda makes one Backend of it per GPU. It can
// be imported without a GPU or driver: device_count() is then 0 and why() gives the reason. The
// tests build it a second time, with kernels that run on the CPU.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bind_backend.h"
#include "cuda/allocator.h"
#include "cuda/device.h"
#include "cuda/feed.h"
#include "cuda/graph.h"
#include "cuda/kernels.h"
#include "cuda/precision.h"
#include "cuda/sm90/sm90.h"
#include "cuda/transfer.h"
#include "module_functions.h"
#include "module_parts.h"

#ifndef NEEDLE_CUDA_MODULE
#define NEEDLE_CUDA_MODULE ndarray_backend_cuda
#endif
#define NEEDLE_QUOTE_(text) #text
#define NEEDLE_QUOTE(text) NEEDLE_QUOTE_(text)

namespace py = pybind11;

namespace needle::bindings {

const ArrayMemory array_memory = {
    "needle.backend_ndarray." NEEDLE_QUOTE(NEEDLE_CUDA_MODULE) ".Array",
    "Array(size, dtype='float32'): a buffer of the first GPU; its contents start undefined.",
    false,
    cuda::allocate,
    [](void* data, std::size_t bytes, int device) { cuda::release(data, bytes, device); },
};

const KernelTable& module_table() { return cuda::table(); }

namespace {

int checked(int device) {
  if (device < 0 || device >= cuda::device_count()) {
    raise_error("cuda: there are " + std::to_string(cuda::device_count()) +
                " devices, got number " + std::to_string(device));
  }
  return device;
}

void upload(const py::array& source, py::handle target) {
  const View out = to_view("upload", target.ptr());
  const py::module_ numpy = py::module_::import("numpy");
  const py::dtype dtype(name_of(out.dtype));
  if (!dtype.attr("__eq__")(source.dtype().attr("newbyteorder")("=")).cast<bool>()) {
    raise_error(std::string("upload: the source must have out's dtype, ") + name_of(out.dtype) +
                "; convert it first");
  }
  const py::array straight = numpy.attr("ascontiguousarray")(source, dtype);
  if (straight.size() != size_of(out)) {
    raise_error("upload: the source must have as many elements as out");
  }
  const void* data = straight.data();
  WithoutGil released;
  cuda::upload(data, out);
}

py::array download(py::handle source) {
  const View a = to_view("download", source.ptr());
  py::array result(py::dtype(name_of(a.dtype)),
                   std::vector<py::ssize_t>(a.shape, a.shape + a.ndim));
  void* data = result.mutable_data();
  WithoutGil released;
  cuda::download(a, data);
  return result;
}

py::object allocate(int device, std::int64_t size, py::handle dtype) {
  return py::reinterpret_steal<py::object>(
      new_array(size, dtype_from_python(dtype.ptr()), checked(device)));
}

py::dict memory_stats(int device) { return dict_of(cuda::memory_stats(checked(device))); }

void empty_cache(int device) {
  cuda::empty_feed(checked(device));
  cuda::empty_cache(device);
}

void synchronize(int device) {
  checked(device);
  WithoutGil released;
  cuda::synchronize(device);
}

// Defines the functions whose first parameter is the number of a device. needle.backends.cuda binds
// that parameter once per GPU.
void bind_devices(py::module_& m) {
  def(m, "allocate_on", &allocate, py::arg("device"), py::arg("size"), py::arg("dtype"),
      "Backend.allocate on a device.");
  def(m, "memory_stats_of", &memory_stats, py::arg("device"),
      "Bytes in_use, cached, peak; counts allocations, reuses.");
  def(m, "empty_cache_of", &empty_cache, py::arg("device"),
      "Gives cached buffers, and those of uploads, back to the GPU.");
  def(m, "synchronize_on", &synchronize, py::arg("device"),
      "Waits for the device; errors of its kernels are raised here.");
}

void bind_graphs(py::module_& m) {
  py::class_<cuda::Graph>(m, "Graph", py::module_local(),
                          "Graph(device): from here to finish() or abandon() this thread's kernels "
                          "are recorded instead of run; launch() runs them.")
      .def(py::init([](int device) {
             return translated([&] { return std::make_unique<cuda::Graph>(checked(device)); });
           }),
           py::arg("device"))
      .def("finish", &cuda::Graph::finish, py::call_guard<WithoutGil>())
      .def("abandon", &cuda::Graph::abandon, py::call_guard<WithoutGil>())
      .def("launch", &cuda::Graph::launch, py::call_guard<WithoutGil>());
}

std::vector<std::string> matmul_precisions(int device) {
  const bool all = cuda::has_tensor_cores(checked(device));
  const auto* const names = cuda::kPrecisionNames;
  return {names, all ? std::end(cuda::kPrecisionNames) : names + 1};
}

void bind_precision(py::module_& m) {
  def(m, "set_matmul_precision", &cuda::set_precision, py::arg("name"),
      "Sets the precision of float32 products: needle.config.matmul_precision.");
  def(m, "matmul_precisions_of", &matmul_precisions, py::arg("device"),
      "The precisions that a device supports.");
}

void bind_transfers(py::module_& m) {
  def(m, "upload", &upload, py::arg("source"), py::arg("out"),
      "Writes a host array into the view `out`.");
  def(m, "download", &download, py::arg("a"), "A new compact host array with the view's elements.");
}

}  // namespace
}  // namespace needle::bindings

PYBIND11_MODULE(NEEDLE_CUDA_MODULE, m) {
  using namespace needle::bindings;
  m.doc() = "needle's CUDA kernels; needle.backends.cuda makes a Backend of this module.";
  m.attr("__device_name__") = "cuda";
  m.attr("Array") = pybind11::handle(reinterpret_cast<PyObject*>(array_type()));
  m.def("device_count", &needle::cuda::device_count, "GPUs that can be used; 0 where none can.");
  m.def("why", &needle::cuda::why, "The driver's reason why device_count() is 0.");
  m.def("set_synchronous", &needle::cuda::set_synchronous, pybind11::arg("on"),
        "With True, every kernel is waited for, so that its error is raised where it is called.");
  m.def("enable_sm90", &needle::cuda::enable_sm90, pybind11::arg("on"),
        "With True, GPUs of sm_90 use warpgroup MMA and TMA: needle.config.CUDA_SM90.");
  m.def("set_exact", &needle::cuda::set_exact, pybind11::arg("on"),
        "With True, before the first array: buffers are neither rounded up nor cached.");
  bind_transfers(m);
  bind_devices(m);
  bind_graphs(m);
  bind_precision(m);
  bind_cuda_images(m);
#ifdef NEEDLE_CUDA_ON_CPU
  m.def("set_order", [](const std::string& name) {
    using cuda_on_cpu::Order;
    cuda_on_cpu::set_order(name == "forward"    ? Order::kForward
                           : name == "reversed" ? Order::kReversed
                                                : Order::kShuffled);
  });
  m.def("set_processors", &cuda_on_cpu::set_processors);
  m.def("tma_loads", &cuda_on_cpu::tma_loads);
  m.def("set_capability", &cuda_on_cpu::set_capability);
  m.def("watch_races", &cuda_on_cpu::watch_races);
  m.def("count_accesses", &cuda_on_cpu::count_accesses);
  m.def("table_of_counts", &cuda_on_cpu::table_of_counts);
  m.def("counted", [] {
    std::vector<pybind11::tuple> rows;
    for (const auto& c : cuda_on_cpu::counted()) {
      rows.push_back(
          pybind11::make_tuple(c.kernel, c.place, c.shared, c.write, c.accesses, c.parts, c.least));
    }
    return rows;
  });
  m.def("launches", &cuda_on_cpu::launches);
  m.def("waits", &cuda_on_cpu::waits);
  m.def("fail_next_kernel", &cuda_on_cpu::fail_next_kernel);
  m.def("set_memory_limit", &cuda_on_cpu::set_memory_limit);
  m.def("bytes_from_slots", &cuda_on_cpu::bytes_from_registered);
#endif
  try {
    bind_backend(m.ptr());
    bind_cuda_moments(m.ptr());
  } catch (const PythonError&) {
    throw pybind11::error_already_set();
  }
}
