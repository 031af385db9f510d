#include "image_arguments.h"

namespace py = pybind11;

namespace needle::bindings {

using data::Element;

Element element_of(const std::string& what, const py::array& array) {
  if (array.dtype().equal(py::dtype::of<std::uint8_t>())) return Element::kByte;
  if (array.dtype().equal(py::dtype::of<float>())) return Element::kFloat;
  raise_error("run_images: " + what + " must be uint8 or float32, got " +
              py::str(array.dtype()).cast<std::string>());
}

std::int64_t span_of(const data::SourceImage& image) {
  const std::int64_t shape[] = {image.height, image.width, image.channels};
  const std::int64_t strides[] = {image.row_stride, image.column_stride, image.channel_stride};
  std::int64_t size = 1, span = 1;
  for (int i = 0; i < 3; ++i) {
    if (strides[i] < 0 && shape[i] > 1) return 0;
    size *= shape[i];
    span += shape[i] > 1 ? (shape[i] - 1) * strides[i] : 0;
  }
  return size == span ? size : 0;
}

namespace {

// Returns the image whose height, width and channels are axes `axis` to `axis` + 2 of the array.
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
  from.span = span_of(*from.rows) * array.itemsize();
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
  for (const py::handle& item : list) {
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

}  // namespace

Sources sources_of(const py::object& images, const py::object& indices) {
  if (py::isinstance<py::array>(images)) {
    return rows_of(py::reinterpret_borrow<py::array>(images), indices);
  }
  if (!PySequence_Check(images.ptr())) {
    raise_error("run_images: images must be an array or a list of arrays");
  }
  return list_of(py::reinterpret_borrow<py::sequence>(images), indices);
}

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

}  // namespace needle::bindings
