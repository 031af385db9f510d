// run_images of the submodule `data`: a program of augmentation steps over a batch of images.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "bind_data.h"
#include "core/thread_pool.h"
#include "cpu/select.h"
#include "data/program.h"
#include "data/select.h"
#include "data_arguments.h"
#include "translated.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

using data::Element;

Element element_of(const std::string& what, const py::array& array) {
  if (array.dtype().equal(py::dtype::of<std::uint8_t>())) return Element::kByte;
  if (array.dtype().equal(py::dtype::of<float>())) return Element::kFloat;
  raise_error("run_images: " + what + " must be uint8 or float32, got " +
              py::str(array.dtype()).cast<std::string>());
}

// The image that starts `skip` bytes into the array, its axes from `axis` on.
data::SourceImage image_of(const py::array& array, int axis) {
  const std::int64_t item = array.itemsize();
  std::int64_t strides[3];
  for (int i = 0; i < 3; ++i) {
    strides[i] = array.strides(axis + i) / item;
    if (array.shape(axis + i) > 1 && array.strides(axis + i) % item != 0) {
      raise_error("run_images: images must have strides of whole elements; copy them first");
    }
  }
  if (reinterpret_cast<std::uintptr_t>(array.data()) % item != 0) {
    raise_error("run_images: images must be aligned; copy them first");
  }
  return {array.data(), array.shape(axis), array.shape(axis + 1), array.shape(axis + 2), strides[0],
          strides[1],   strides[2]};
}

constexpr std::int64_t kPrefetchBytes = 1 << 14;  // larger images are fetched by the hardware
constexpr std::int64_t kLineBytes = 64;

// The images of one call: rows of one array, or arrays of their own.
struct Sources {
  Element type = Element::kByte;
  std::int64_t channels = 0, count = 0;
  std::optional<data::SourceImage> rows;
  std::int64_t row_bytes = 0;
  Integers indices;
  std::vector<data::SourceImage> images;
  std::int64_t span = 0;  // bytes from a row's first element to its last, 0: not in one piece
  std::vector<py::array> owners;  // a list can lose its items while the GIL is released

  data::SourceImage image(std::int64_t i) const {
    if (!rows) return images[i];
    data::SourceImage image = *rows;
    const std::int64_t row = indices.empty() ? i : indices[i];
    image.data = static_cast<const char*>(image.data) + row * row_bytes;
    return image;
  }

  // Has a small image brought to the cache: chosen at random, each would be waited for. Two images
  // ahead, where conversion keeps up with memory.
  void prefetch(std::int64_t i) const {
    if (indices.empty() || span == 0 || span > kPrefetchBytes) return;
    const char* first = static_cast<const char*>(rows->data) + indices[i] * row_bytes;
    for (std::int64_t at = 0; at < span; at += kLineBytes) __builtin_prefetch(first + at, 0, 2);
  }
};

// Of elements that all lie in one piece of memory, whatever the order of the axes; 0 of others.
std::int64_t span_of(const py::array& array) {
  std::int64_t span = array.itemsize(), bytes = array.itemsize();
  for (int axis = 1; axis < array.ndim(); ++axis) {
    if (array.shape(axis) == 0 || array.strides(axis) < 0) return 0;
    span += (array.shape(axis) - 1) * array.strides(axis);
    bytes *= array.shape(axis);
  }
  return span == bytes ? span : 0;
}

Sources rows_of(const py::array& array, const py::object& indices) {
  if (array.ndim() != 4) {
    raise_error("run_images: images must be (N, H, W, C) or a list of (H, W, C), got " +
                shape_of(array));
  }
  Sources from;
  from.type = element_of("images", array);
  from.rows = image_of(array, 1);
  from.row_bytes = array.strides(0);
  if (array.shape(0) > 1 && from.row_bytes % array.itemsize() != 0) {
    raise_error("run_images: images must have strides of whole elements; copy them first");
  }
  from.channels = array.shape(3);
  from.count = array.shape(0);
  from.span = span_of(array);
  if (indices.is_none()) return from;
  from.indices = integers("run_images: indices", indices);
  from.count = static_cast<std::int64_t>(from.indices.size());
  for (const std::int64_t i : from.indices) {
    if (i < 0 || i >= array.shape(0)) {
      raise_error("run_images: every index must be in [0, " + std::to_string(array.shape(0)) +
                  "), got " + std::to_string(i));
    }
  }
  return from;
}

Sources list_of(const py::sequence& list, const py::object& indices) {
  if (!indices.is_none()) {
    raise_error("run_images: a list of images takes no indices; pass None");
  }
  Sources from;
  for (const py::handle item : list) {
    if (!py::isinstance<py::array>(item) || py::reinterpret_borrow<py::array>(item).ndim() != 3) {
      raise_error("run_images: every image of a list must be an array (H, W, C)");
    }
    const auto array = py::reinterpret_borrow<py::array>(item);
    const Element type = element_of("images", array);
    if (from.images.empty()) {
      from.type = type;
      from.channels = array.shape(2);
    }
    if (type != from.type || array.shape(2) != from.channels) {
      raise_error("run_images: images must have one dtype and one count of channels");
    }
    from.images.push_back(image_of(array, 0));
    from.owners.push_back(array);
  }
  from.count = static_cast<std::int64_t>(from.images.size());
  return from;
}

// `owners` keeps the arrays of parameters.
std::vector<data::StepCall> calls_of(const py::sequence& steps, const py::sequence& parameters,
                                     std::int64_t count, std::vector<py::array>& owners) {
  if (steps.size() != parameters.size()) {
    raise_error("run_images: one array of parameters a step is needed, got " +
                std::to_string(parameters.size()) + " for " + std::to_string(steps.size()));
  }
  std::vector<data::StepCall> calls;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const py::object step = steps[i], numbers = parameters[i];
    data::StepCall call;
    try {
      const auto pair = step.cast<std::pair<std::string, std::vector<double>>>();
      call.name = pair.first;
      call.constants = pair.second;
    } catch (const py::cast_error&) {
      raise_error("run_images: a step must be (name, numbers), got " +
                  py::repr(step).cast<std::string>());
    }
    if (!py::isinstance<py::array>(numbers)) {
      raise_error("run_images: " + call.name + ": parameters must be a float64 array");
    }
    const auto array = py::reinterpret_borrow<py::array>(numbers);
    if (!array.dtype().equal(py::dtype::of<double>()) || array.ndim() != 2 ||
        array.shape(0) != count || !(array.flags() & py::array::c_style) ||
        reinterpret_cast<std::uintptr_t>(array.data()) % sizeof(double) != 0) {
      raise_error("run_images: " + call.name + ": parameters must be compact float64 (" +
                  std::to_string(count) + ", k), got " +
                  py::str(array.dtype()).cast<std::string>() + " " + shape_of(array));
    }
    call.parameters = static_cast<const double*>(array.data());
    call.parameter_count = array.shape(1);
    owners.push_back(array);
    calls.push_back(std::move(call));
  }
  return calls;
}

data::OutputRow output_of(const py::array& out, std::int64_t count) {
  if (out.ndim() != 4 || out.shape(0) != count) {
    raise_error("run_images: out must have 4 axes and " + std::to_string(count) + " rows, got " +
                shape_of(out));
  }
  check_writeable("run_images", out);
  const data::OutputRow row{{out.shape(1), out.shape(2), out.shape(3)}, element_of("out", out)};
  const bool aligned = reinterpret_cast<std::uintptr_t>(out.data()) % out.itemsize() == 0 &&
                       (count < 2 || out.strides(0) % out.itemsize() == 0);
  if (!aligned || !is_compact_row(out)) {
    raise_error("run_images: every row of out must be aligned and C-contiguous");
  }
  check_rows_apart("run_images", out, row_bytes(out));
  return row;
}

constexpr std::int64_t kBytesPerChunk = 1 << 16;

void run_images(const py::sequence& steps, const py::sequence& parameters, const py::object& images,
                const py::object& indices, py::array out, int threads) {
  if (threads != 0 && threads != 1) {
    raise_error("run_images: threads must be 0 (the pool) or 1 (this one), got " +
                std::to_string(threads));
  }
  if (!py::isinstance<py::array>(images) && !PySequence_Check(images.ptr())) {
    raise_error("run_images: images must be an array or a list of arrays");
  }
  Sources from = py::isinstance<py::array>(images)
                     ? rows_of(py::reinterpret_borrow<py::array>(images), indices)
                     : list_of(py::reinterpret_borrow<py::sequence>(images), indices);
  const std::vector<data::StepCall> calls = calls_of(steps, parameters, from.count, from.owners);
  const data::OutputRow row = output_of(out, from.count);
  if (from.count == 0) return;  // a list without images says neither dtype nor channels
  const data::Program program(calls, from.channels, from.type, row,
                              data::step_table(cpu::selected_table().isa));
  char* to = static_cast<char*>(out.mutable_data());
  const std::int64_t stride = out.strides(0), bytes = row_bytes(out);
  const py::gil_scoped_release released;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + 2 < end) from.prefetch(i + 2);
      program.run(from.image(i), i, to + i * stride);
    }
  };
  if (threads == 1) return run(0, from.count);
  parallel_for(from.count, kBytesPerChunk / (bytes + 1) + 1, run);
}

}  // namespace

void bind_images(py::module_& m) {
  m.def(
      "run_images",
      [](const py::sequence& steps, const py::sequence& parameters, const py::object& images,
         const py::object& indices, const py::array& out, int threads) {
        translated([&] { run_images(steps, parameters, images, indices, out, threads); });
      },
      py::arg("steps"), py::arg("parameters"), py::arg("images"), py::arg("indices"),
      py::arg("out").noconvert(), py::arg("threads"),
      "Runs augmentation steps over a batch of images into out; see needle.data.native.");
}

}  // namespace needle::bindings
