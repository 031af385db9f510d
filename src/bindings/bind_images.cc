// run_images of the submodule `data` runs a program of augmentation steps over a batch of images.
// lower_images prepares the same program for a device whose backend is written in Python.
#include <pybind11/numpy.h>

#include <array>
#include <bit>
#include <string>
#include <vector>

#include "core/thread_pool.h"
#include "cpu/select.h"
#include "data/lower.h"
#include "data/select.h"
#include "image_arguments.h"
#include "module_functions.h"
#include "module_parts.h"
#include "without_gil.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

constexpr std::int64_t kPrefetchBytes = 1 << 14;  // the hardware prefetches larger images
constexpr std::int64_t kLineBytes = 64;

// Prefetches a small image, because random access would make conversion wait for each one. Two
// images ahead is far enough for conversion to keep up with memory.
void prefetch(const Sources& from, std::int64_t i) {
  if (from.indices.empty() || from.span == 0 || from.span > kPrefetchBytes) return;
  const char* first = static_cast<const char*>(from.rows->data) + from.indices[i] * from.row_bytes;
  for (std::int64_t offset = 0; offset < from.span; offset += kLineBytes) {
    __builtin_prefetch(first + offset, 0, 2);
  }
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

constexpr std::int64_t kBytesPerChunk = 1 << 18;

void run_images(const py::sequence& steps, const py::sequence& parameters, const py::object& images,
                const py::object& indices, py::array out, int threads) {
  if (threads != 0 && threads != 1) {
    raise_error("run_images: threads must be 0 (the pool) or 1 (this one), got " +
                std::to_string(threads));
  }
  Sources from = sources_of(images, indices);
  const std::vector<data::StepCall> calls = calls_of(steps, parameters, from.count, from.owners);
  const data::OutputRow row = output_of(out, from.count);
  if (from.count == 0) return;  // an empty list has neither dtype nor channels
  const data::Program program(calls, from.channels, from.type, row,
                              &data::step_table(cpu::selected_table().isa));
  char* to = static_cast<char*>(out.mutable_data());
  const std::int64_t stride = out.strides(0), bytes = row_bytes(out);
  const WithoutGil released;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + 2 < end) prefetch(from, i + 2);
      program.run(from.image(i), i, to + i * stride);
    }
  };
  if (threads == 1) return run(0, from.count);
  parallel_for(from.count, kBytesPerChunk / (bytes + 1) + 1, run);
}

// ---- lower_images ------------------------------------------------------------------------------

// Returns the fields of ImagePass in order, except `steps`, which come last as (kind, at, fill).
Integers numbers_of(const ImagePass& pass) {
  Integers numbers{pass.channels,
                   pass.height,
                   pass.width,
                   pass.record_words,
                   pass.records,
                   pass.row_stride,
                   pass.column_stride,
                   pass.channel_stride,
                   pass.before,
                   pass.count,
                   std::int64_t(pass.resampling),
                   pass.resampling_at,
                   std::bit_cast<std::int32_t>(pass.resampling_fill),
                   pass.floats_in,
                   pass.floats_between,
                   pass.floats_out};
  for (int i = 0; i < pass.count; ++i) {
    const ImagePass::Step& step = pass.steps[i];
    numbers.insert(numbers.end(),
                   {std::int64_t(step.kind), step.at, std::bit_cast<std::int32_t>(step.fill)});
  }
  return numbers;
}

// `places` has one row per image: its offset, its height and width, and its strides along rows,
// columns and channels.
py::tuple lower_images(const py::sequence& steps, const py::sequence& parameters,
                       const py::array_t<std::int64_t, py::array::c_style>& places,
                       std::int64_t channels, bool floats, const std::array<std::int64_t, 3>& shape,
                       bool floats_out) {
  if (places.ndim() != 2 || places.shape(1) != 6) {
    raise_error("lower_images: places must be (images, 6), got " + shape_of(places));
  }
  const auto place = places.unchecked<2>();
  std::vector<data::SourceImage> images;
  std::vector<std::int64_t> offsets;
  for (py::ssize_t i = 0; i < places.shape(0); ++i) {
    offsets.push_back(place(i, 0));
    images.push_back(
        {nullptr, place(i, 1), place(i, 2), channels, place(i, 3), place(i, 4), place(i, 5)});
  }
  std::vector<py::array> owners;
  const auto calls = calls_of(steps, parameters, places.shape(0), owners);
  const auto element = [](bool real) {
    return real ? data::Element::kFloat : data::Element::kByte;
  };
  const data::OutputRow row{{shape[0], shape[1], shape[2]}, element(floats_out)};
  const data::Program program(calls, channels, element(floats), row, nullptr);
  const ImageBatch lowered = data::lower(program, images, offsets);
  std::vector<Integers> passes;
  for (const ImagePass& pass : lowered.passes) passes.push_back(numbers_of(pass));
  const auto count = static_cast<py::ssize_t>(lowered.words.size());
  return py::make_tuple(passes, py::array_t<std::uint32_t>(count, lowered.words.data()));
}

}  // namespace

void bind_images(py::module_& m) {
  def(m, "run_images", &run_images, py::arg("steps"), py::arg("parameters"), py::arg("images"),
      py::arg("indices"), py::arg("out").noconvert(), py::arg("threads"),
      "Runs augmentation steps over a batch of images into out; see "
      "needle.data.samples.native_kernels.");
  def(m, "lower_images", &lower_images, py::arg("steps"), py::arg("parameters"), py::arg("places"),
      py::arg("channels"), py::arg("floats"), py::arg("shape"), py::arg("floats_out"),
      "The passes of augmentation steps and the words that they read; see core/image_pass.h.");
}

}  // namespace needle::bindings
