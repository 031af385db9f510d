// Checks the images, steps and parameters of run_images and converts them to C++ types, for the CPU
// and CUDA modules. It raises needle's errors.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/program.h"
#include "data_arguments.h"

namespace needle::bindings {

data::Element element_of(const std::string& what, const pybind11::array& array);

// Returns the image's number of elements if it is contiguous for some order of its axes, else 0.
std::int64_t span_of(const data::SourceImage& image);

// The images of one call: rows of one array, or separate arrays.
struct Sources {
  data::Element type = data::Element::kByte;
  std::int64_t channels = 0, count = 0;
  std::optional<data::SourceImage> rows;
  std::int64_t row_bytes = 0;
  Integers indices;
  std::vector<data::SourceImage> images;
  std::int64_t span = 0;  // bytes from a row's first element to its last; 0: not one piece
  std::vector<pybind11::array> owners;  // a list may lose its items while the GIL is released

  data::SourceImage image(std::int64_t i) const {
    if (!rows) return images[i];
    data::SourceImage image = *rows;
    const std::int64_t row = indices.empty() ? i : indices[i];
    image.data = static_cast<const char*>(image.data) + row * row_bytes;
    return image;
  }
};

// `images` is an array (N, H, W, C), from which `indices` selects rows (None selects all), or a
// list of arrays (H, W, C).
Sources sources_of(const pybind11::object& images, const pybind11::object& indices);

// `owners` keeps the parameter arrays alive.
std::vector<data::StepCall> calls_of(const pybind11::sequence& steps,
                                     const pybind11::sequence& parameters, std::int64_t count,
                                     std::vector<pybind11::array>& owners);

}  // namespace needle::bindings
