// The submodule `data`: random words, shuffled orders, gathering rows, augmentation programs.
// Everything is checked here, with the GIL; the work then touches no Python object. Indices are
// copied, so that nobody changes them after the check.
#include "bind_data.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/thread_pool.h"
#include "cpu/select.h"
#include "data/gather.h"
#include "data/permutation.h"
#include "data/philox.h"
#include "data/program.h"
#include "data/select.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

using data::Element;
using Integers = std::vector<std::int64_t>;

template <class F>
auto translated(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    throw py::value_error(error.what());
  }
}

std::string shape_of(const py::array& array) {
  return py::str(array.attr("shape")).cast<std::string>();
}

// A Python integer modulo 2**64.
std::uint64_t masked(const char* name, const py::handle& value) {
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) {
    PyErr_Clear();
    raise_error(std::string(name) + " must be a whole number, got " +
                py::repr(value).cast<std::string>());
  }
  return PyLong_AsUnsignedLongLongMask(number.ptr());
}

Integers integers(const std::string& name, const py::handle& value) {
  if (!py::isinstance<py::array>(value)) {
    raise_error(name + " must be an array of int64, got " +
                std::string(Py_TYPE(value.ptr())->tp_name));
  }
  const auto array = py::reinterpret_borrow<py::array>(value);
  if (!array.dtype().equal(py::dtype::of<std::int64_t>()) || array.ndim() != 1) {
    raise_error(name + " must be int64 of one axis, got " +
                py::str(array.dtype()).cast<std::string>() + " " + shape_of(array));
  }
  Integers values(array.shape(0));
  const char* from = static_cast<const char*>(array.data());
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::memcpy(&values[i], from + static_cast<py::ssize_t>(i) * array.strides(0),
                sizeof values[i]);
  }
  return values;
}

void check_writeable(const std::string& op, const py::array& out) {
  if (!out.writeable()) raise_error(op + ": out must be writeable");
}

// Rows of out are written by several threads: no two may share memory.
void check_rows_apart(const std::string& op, const py::array& out, std::int64_t row_bytes) {
  if (out.shape(0) > 1 && std::abs(out.strides(0)) < row_bytes) {
    raise_error(op + ": rows of out must not overlap");
  }
}

bool is_compact_row(const py::array& array) {
  if (array.size() == 0) return true;
  std::int64_t stride = array.itemsize();
  for (int axis = static_cast<int>(array.ndim()) - 1; axis > 0; --axis) {
    if (array.shape(axis) != 1 && array.strides(axis) != stride) return false;
    stride *= array.shape(axis);
  }
  return true;
}

std::int64_t row_bytes(const py::array& array) {
  std::int64_t bytes = array.itemsize();
  for (int axis = 1; axis < array.ndim(); ++axis) bytes *= array.shape(axis);
  return bytes;
}

// ---- philox_words, permute_indices ----

py::array philox_words(const py::object& seed, const py::object& epoch, const py::object& indices,
                       std::int64_t stream, std::int64_t count) {
  if (stream < 0 || stream >= 1 << 24 || count < 0 || count > 1024) {
    raise_error("philox_words: stream must be in [0, 2**24) and count in [0, 1024], got stream " +
                std::to_string(stream) + " and count " + std::to_string(count));
  }
  const std::uint64_t key = masked("philox_words: seed", seed);
  const auto turn = static_cast<std::uint32_t>(masked("philox_words: epoch", epoch));
  const Integers places = integers("philox_words: indices", indices);
  const auto rows = static_cast<py::ssize_t>(places.size());
  py::array_t<std::uint32_t> out({rows, static_cast<py::ssize_t>(count)});
  std::uint32_t* words = out.mutable_data();
  const py::gil_scoped_release released;
  for (std::size_t i = 0; i < places.size(); ++i) {
    data::philox_words(key, turn, places[i], static_cast<std::uint32_t>(stream), count,
                       words + static_cast<std::int64_t>(i) * count);
  }
  return out;
}

py::array permute_indices(const py::object& positions, std::int64_t length, const py::object& seed,
                          const py::object& epoch) {
  const Integers places = integers("permute_indices: positions", positions);
  const std::uint64_t key = masked("permute_indices: seed", seed);
  const auto turn = static_cast<std::uint32_t>(masked("permute_indices: epoch", epoch));
  if (length > std::int64_t{1} << 62) {
    raise_error("permute_indices: length must be at most 2**62, got " + std::to_string(length));
  }
  py::array_t<std::int64_t> out(static_cast<py::ssize_t>(places.size()));
  std::int64_t* indices = out.mutable_data();
  const py::gil_scoped_release released;
  data::permute_indices(places.data(), static_cast<std::int64_t>(places.size()), length, key, turn,
                        indices);
  return out;
}

// ---- gather_rows ----

void check_gather(const py::array& source, const Integers& indices, const py::array& out) {
  if (source.ndim() < 1 || source.ndim() > data::kMaxRowDims || out.ndim() != source.ndim()) {
    raise_error("gather_rows: source and out must have the same axes, at least one, got " +
                shape_of(source) + " and " + shape_of(out));
  }
  if (!source.dtype().equal(out.dtype()) || source.dtype().attr("hasobject").cast<bool>()) {
    raise_error("gather_rows: source and out must have one dtype, without objects, got " +
                py::str(source.dtype()).cast<std::string>() + " and " +
                py::str(out.dtype()).cast<std::string>());
  }
  bool same = out.shape(0) == static_cast<py::ssize_t>(indices.size());
  for (int i = 1; i < source.ndim(); ++i) same = same && source.shape(i) == out.shape(i);
  if (!same) {
    raise_error("gather_rows: out must be the rows of source, one an index (" +
                std::to_string(indices.size()) + "), got " + shape_of(out) + " for a source " +
                shape_of(source));
  }
  check_writeable("gather_rows", out);
}

void gather_rows(const py::array& source, const py::object& index, py::array out) {
  const Integers indices = integers("gather_rows: indices", index);
  check_gather(source, indices, out);
  for (const std::int64_t i : indices) {
    if (i < 0 || i >= source.shape(0)) {
      throw py::index_error("gather_rows: every index must be in [0, " +
                            std::to_string(source.shape(0)) + "), got " + std::to_string(i));
    }
  }
  if (row_bytes(out) == 0) return;
  data::RowLayout row{static_cast<int>(source.ndim()) - 1, source.itemsize(), {}, {}, {}};
  std::int64_t reach = source.itemsize();
  for (int i = 0; i < row.ndim; ++i) {
    row.shape[i] = source.shape(i + 1);
    row.from[i] = source.strides(i + 1);
    row.to[i] = out.strides(i + 1);
    reach += (row.shape[i] - 1) * std::abs(row.to[i]);
  }
  check_rows_apart("gather_rows", out, reach);
  const char* from = static_cast<const char*>(source.data());
  char* to = static_cast<char*>(out.mutable_data());
  const std::int64_t from_stride = source.strides(0), to_stride = out.strides(0);
  const py::gil_scoped_release released;
  data::gather_rows(from, from_stride, indices.data(), static_cast<std::int64_t>(indices.size()),
                    to, to_stride, row);
}

// ---- run_images ----

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

void bind_data(py::module_& parent) {
  py::module_ m = parent.def_submodule("data", "Kernels of needle.data; see needle.data.native.");
  m.def(
      "philox_words",
      [](const py::object& seed, const py::object& epoch, const py::object& indices,
         std::int64_t stream, std::int64_t count) {
        return translated([&] { return philox_words(seed, epoch, indices, stream, count); });
      },
      py::arg("seed"), py::arg("epoch"), py::arg("indices"), py::arg("stream"), py::arg("count"),
      "needle.data.philox.words: uint32 (n, count).");
  m.def(
      "permute_indices",
      [](const py::object& positions, std::int64_t length, const py::object& seed,
         const py::object& epoch) {
        return translated([&] { return permute_indices(positions, length, seed, epoch); });
      },
      py::arg("positions"), py::arg("length"), py::arg("seed"), py::arg("epoch"),
      "needle.data.philox.permutation: int64 (n,).");
  m.def(
      "gather_rows",
      [](const py::array& source, const py::object& indices, const py::array& out) {
        translated([&] { gather_rows(source, indices, out); });
      },
      py::arg("source").noconvert(), py::arg("indices"), py::arg("out").noconvert(),
      "Writes source[indices] into out, rows by the first axis.");
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
