// run_images_on runs a program of augmentation steps over a batch and writes the result to a device
// array. The batch is in host memory or in a device array. pin_on pins host memory that holds
// batches, so that the GPU can read it directly.
#include "module_parts.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "cuda/augment.h"
#include "cuda/device.h"
#include "cuda/feed.h"
#include "data/canvas.h"
#include "data/lower.h"
#include "image_arguments.h"
#include "module_functions.h"
#include "without_gil.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

using cuda::FeedTurn;
using cuda::HostPiece;
using data::Element;
using data::SourceImage;

// A batch: its images, their offsets in elements from one base address, and the pieces of host
// memory to upload.
struct Batch {
  Element type = Element::kByte;
  std::int64_t channels = 0;
  std::vector<SourceImage> images;
  std::vector<std::int64_t> offsets;
  const void* base = nullptr;  // of a device array
  std::vector<HostPiece> pieces;
  std::vector<std::unique_ptr<char[]>> copies;
  std::vector<py::array> owners;
};

// Replaces an image that has gaps or negative strides by a contiguous copy, which `batch` owns.
void make_dense(SourceImage& image, Batch& batch) {
  const auto item = std::int64_t(size_of(batch.type));
  const std::int64_t row = image.width * batch.channels;
  batch.copies.push_back(std::make_unique<char[]>(image.height * row * item));
  char* to = batch.copies.back().get();
  const auto* from = static_cast<const char*>(image.data);
  for (std::int64_t y = 0; y < image.height; ++y) {
    for (std::int64_t x = 0; x < image.width; ++x) {
      for (std::int64_t c = 0; c < batch.channels; ++c, to += item) {
        const std::int64_t offset =
            y * image.row_stride + x * image.column_stride + c * image.channel_stride;
        std::memcpy(to, from + offset * item, item);
      }
    }
  }
  image = {
      batch.copies.back().get(), image.height, image.width, batch.channels, row, batch.channels, 1};
}

// Computes the images' offsets and the pieces to upload. Adjacent images share one piece.
void place(Batch& batch) {
  const auto item = std::int64_t(size_of(batch.type));
  std::size_t start = 0;  // of the present piece
  for (SourceImage& image : batch.images) {
    if (span_of(image) == 0) make_dense(image, batch);
    const auto bytes = static_cast<std::size_t>(span_of(image) * item);
    const auto* data = static_cast<const char*>(image.data);
    HostPiece* last = batch.pieces.empty() ? nullptr : &batch.pieces.back();
    if (last != nullptr && static_cast<const char*>(last->data) + last->bytes == data) {
      batch.offsets.push_back(std::int64_t(start + last->bytes) / item);
      last->bytes += bytes;
    } else {
      if (last != nullptr) start += FeedTurn::place_after(last->bytes);
      batch.offsets.push_back(std::int64_t(start) / item);
      batch.pieces.push_back({data, bytes});
    }
  }
}

Batch host_batch(const py::object& images, const py::object& indices) {
  Sources from = sources_of(images, indices);
  Batch batch;
  batch.type = from.type;
  batch.channels = from.channels;
  batch.owners = std::move(from.owners);
  for (std::int64_t i = 0; i < from.count; ++i) batch.images.push_back(from.image(i));
  return batch;
}

Element element_of(const char* what, DType dtype) {
  if (dtype == DType::kUInt8) return Element::kByte;
  if (dtype == DType::kFloat32) return Element::kFloat;
  raise_error(std::string("run_images: ") + what + " must be uint8 or float32, got " +
              name_of(dtype));
}

// Makes the batch of an array that is already on the device. Nothing is uploaded.
Batch device_batch(int device, const py::object& images, const py::object& indices) {
  const View view = to_view("run_images", images.ptr());
  NEEDLE_CHECK(view.device == device, "run_images: images and out must be on one device");
  NEEDLE_CHECK(view.ndim == 4, "run_images: images on a device must be (N, H, W, C)");
  NEEDLE_CHECK(indices.is_none(), "run_images: images on a device take no indices; pass None");
  Batch batch;
  batch.type = element_of("images", view.dtype);
  batch.channels = view.shape[3];
  batch.base = view.data;
  for (std::int64_t i = 0; i < view.shape[0]; ++i) {
    batch.images.push_back({nullptr, view.shape[1], view.shape[2], view.shape[3], view.strides[1],
                            view.strides[2], view.strides[3]});
    batch.offsets.push_back(i * view.strides[0]);
  }
  return batch;
}

data::OutputRow output_of(const View& out, std::int64_t count, int device) {
  NEEDLE_CHECK(out.device == device && !out.is_scalar, "run_images: out must be on the device");
  NEEDLE_CHECK(out.ndim == 4 && out.shape[0] == count && is_compact(out),
               "run_images: out must have 4 axes, one row per image, and be compact");
  return {{out.shape[1], out.shape[2], out.shape[3]}, element_of("out", out.dtype)};
}

void run_images(int device, const py::sequence& steps, const py::sequence& parameters,
                const py::object& images, const py::object& indices, const py::object& target) {
  const bool there = is_view(images.ptr());
  Batch batch = there ? device_batch(device, images, indices) : host_batch(images, indices);
  const auto count = static_cast<std::int64_t>(batch.images.size());
  const auto calls = calls_of(steps, parameters, count, batch.owners);
  const View out = to_view("run_images", target.ptr());
  const data::OutputRow row = output_of(out, count, device);
  if (count == 0) return;
  const data::Program program(calls, batch.channels, batch.type, row, nullptr);
  const WithoutGil released;
  if (!there) place(batch);
  const ImageBatch lowered = data::lower(program, batch.images, batch.offsets);
  std::size_t words_at = 0;
  for (const HostPiece& piece : batch.pieces) words_at += FeedTurn::place_after(piece.bytes);
  batch.pieces.push_back({lowered.words.data(), lowered.words.size() * sizeof lowered.words[0]});
  FeedTurn turn(device);
  const char* sent = turn.send(batch.pieces);
  cuda::run_passes(lowered, there ? batch.base : sent,
                   reinterpret_cast<const std::uint32_t*>(sent + words_at), out.data, device);
}

// ---- pinned memory ----

struct Pinned {
  Py_buffer buffer;
  ~Pinned() {
    cuda::unpin(buffer.buf);
    PyBuffer_Release(&buffer);
  }
};

py::object pin(int device, const py::object& memory) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(memory.ptr(), &buffer, PyBUF_SIMPLE) != 0) throw PythonError();
  try {
    cuda::use(device);
    cuda::pin(buffer.buf, static_cast<std::size_t>(buffer.len));
  } catch (const cuda::DeviceFailure&) {
    PyBuffer_Release(&buffer);
    return py::none();
  }
  return py::capsule(new Pinned{buffer}, [](void* held) { delete static_cast<Pinned*>(held); });
}

}  // namespace

void bind_cuda_images(py::module_& m) {
  def(m, "run_images_on", &run_images, py::arg("device"), py::arg("steps"), py::arg("parameters"),
      py::arg("images"), py::arg("indices"), py::arg("out"), "Backend.run_images on a device.");
  def(m, "pin_on", &pin, py::arg("device"), py::arg("memory"), "Backend.pin for a device.");
}

}  // namespace needle::bindings
