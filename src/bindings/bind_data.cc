// Binds the submodule `data`: random words, shuffled orders, checksums and gathers (bind_images.cc
// binds images). Arguments are checked while the GIL is held, because the work runs without it.
// The functions copy indices, so that no other thread can change them after the check.
#include "module_parts.h"

#include <pybind11/numpy.h>

#include <optional>
#include <string>

#include "data/block_sums.h"
#include "data/gather.h"
#include "data/permutation.h"
#include "data/philox.h"
#include "data_arguments.h"
#include "module_functions.h"
#include "without_gil.h"

namespace py = pybind11;

namespace needle::bindings {
namespace {

// Below this many words or bytes the work takes less time than releasing the GIL.
constexpr py::ssize_t kShortCall = 1 << 14;

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
  std::optional<WithoutGil> released;
  if (rows * count > kShortCall) released.emplace();
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
  const WithoutGil released;
  data::permute_indices(places.data(), static_cast<std::int64_t>(places.size()), length, key, turn,
                        indices);
  return out;
}

// ---- block_sums ----

py::array block_sums(const py::array& content, const py::array& keys) {
  const auto is_row = [](const py::array& array) {
    return array.ndim() == 1 && (array.flags() & py::array::c_style) != 0;
  };
  const py::ssize_t block = keys.nbytes();
  if (!is_row(content) || !content.dtype().equal(py::dtype::of<std::uint8_t>()) || !is_row(keys) ||
      !keys.dtype().equal(py::dtype::of<std::uint32_t>()) || block == 0 || block % 8 != 0 ||
      content.nbytes() % block != 0) {
    raise_error(
        "block_sums: content must be uint8 (n * keys.nbytes,) and keys uint32 (2 * k,), "
        "contiguous, got " +
        shape_of(content) + " of " + py::str(content.dtype()).cast<std::string>() + " and " +
        shape_of(keys) + " of " + py::str(keys.dtype()).cast<std::string>());
  }
  py::array_t<std::uint64_t> out(content.nbytes() / block);
  std::uint64_t* sums = out.mutable_data();
  const auto* memory = static_cast<const std::byte*>(content.data());
  const auto* words = static_cast<const std::uint32_t*>(keys.data());
  std::optional<WithoutGil> released;
  if (content.nbytes() > kShortCall) released.emplace();
  data::block_sums(memory, out.size(), keys.size(), words, sums);
  return out;
}

// ---- gather_rows ----

void check_gather(const py::array& source, const Integers& indices, const py::array& out) {
  if (source.ndim() < 1 || source.ndim() >= kMaxDims || out.ndim() != source.ndim()) {
    raise_error("gather_rows: source and out must have the same axes, 1 to " +
                std::to_string(kMaxDims - 1) + " of them, got " + shape_of(source) + " and " +
                shape_of(out));
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

// Returns the dtype as which elements are copied: one with the size of an element if there is one
// and all strides of both arrays are multiples of it, otherwise uint8.
DType word_of(const py::array& source, const py::array& out) {
  constexpr DType kWords[] = {DType::kUInt8, DType::kBFloat16, DType::kInt32, DType::kInt64};
  for (const DType word : kWords) {
    bool whole = size_of(word) == static_cast<std::size_t>(source.itemsize());
    for (const py::array* each : {&source, &out}) {
      for (int i = 0; i < each->ndim(); ++i) {
        whole = whole && each->strides(i) % source.itemsize() == 0;
      }
    }
    if (whole) return word;
  }
  return DType::kUInt8;
}

// Returns a view of the array as words. An additional last axis has the words of one element.
View view_of(const py::array& array, DType word) {
  View v{const_cast<void*>(array.data()), word, static_cast<int>(array.ndim())};
  const auto size = static_cast<py::ssize_t>(size_of(word));
  for (int i = 0; i < v.ndim; ++i) {
    v.shape[i] = array.shape(i);
    v.strides[i] = array.strides(i) / size;
  }
  v.shape[v.ndim] = array.itemsize() / size;
  v.strides[v.ndim++] = 1;
  return v;
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
  std::int64_t reach = out.itemsize();
  for (int i = 1; i < out.ndim(); ++i) reach += (out.shape(i) - 1) * std::abs(out.strides(i));
  check_rows_apart("gather_rows", out, reach);
  const DType word = word_of(source, out);
  const View from = view_of(source, word), to = view_of(out, word);
  std::optional<WithoutGil> released;
  if (out.nbytes() > kShortCall) released.emplace();
  data::gather_rows(from, indices, to);
}

}  // namespace

void bind_data(py::module_& parent) {
  py::module_ m = parent.def_submodule(
      "data", "Kernels of needle.data; see needle.data.samples.native_kernels.");
  def(m, "philox_words", &philox_words, py::arg("seed"), py::arg("epoch"), py::arg("indices"),
      py::arg("stream"), py::arg("count"), "needle.data.philox.words: uint32 (n, count).");
  def(m, "permute_indices", &permute_indices, py::arg("positions"), py::arg("length"),
      py::arg("seed"), py::arg("epoch"), "needle.data.philox.permutation: int64 (n,).");
  def(m, "block_sums", &block_sums, py::arg("content").noconvert(), py::arg("keys").noconvert(),
      "needle.data.samples.checksum.block_sums: uint64 (n,).");
  def(m, "gather_rows", &gather_rows, py::arg("source").noconvert(), py::arg("indices"),
      py::arg("out").noconvert(), "Writes source[indices] into out, rows by the first axis.");
  bind_images(m);
}

}  // namespace needle::bindings
