// run_images of the submodule `data`: a program of augmentation steps over a batch of images.
#include <pybind11/numpy.h>

#include <string>
#include <vector>

#include "bind_data.h"
#include "core/thread_pool.h"
#include "cpu/select.h"
#include "data/select.h"
#include "image_arguments.h"
#include "translated.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

constexpr std::int64_t kPrefetchBytes = 1 << 14;  // the hardware prefetches larger images
constexpr std::int64_t kLineBytes = 64;

// Prefetches a small image: random access would wait for each one. Two images ahead is the distance
// at which conversion keeps up with memory.
void prefetch(const Sources& from, std::int64_t i) {
  if (from.indices.empty() || from.span == 0 || from.span > kPrefetchBytes) return;
  const char* first = static_cast<const char*>(from.rows->data) + from.indices[i] * from.row_bytes;
  for (std::int64_t at = 0; at < from.span; at += kLineBytes) __builtin_prefetch(first + at, 0, 2);
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
  if (from.count == 0) return;  // a list without images says neither dtype nor channels
  const data::Program program(calls, from.channels, from.type, row,
                              &data::step_table(cpu::selected_table().isa));
  char* to = static_cast<char*>(out.mutable_data());
  const std::int64_t stride = out.strides(0), bytes = row_bytes(out);
  const py::gil_scoped_release released;
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (i + 2 < end) prefetch(from, i + 2);
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
      "Runs augmentation steps over a batch of images into out; see "
      "needle.data.samples.native_kernels.");
}

}  // namespace needle::bindings
