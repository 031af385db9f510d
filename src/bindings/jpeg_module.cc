// The Python module jpeg_region decodes a rectangle of a JPEG file with libjpeg-turbo, which
// computes only the blocks of that rectangle and stops below it. If it returns False,
// needle.data.formats.decoding decodes the whole image by other means. It is a separate module, so
// that needle does not require the library.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>  // jpeglib.h needs it
#include <utility>

#include <jpeglib.h>

#include "without_gil.h"

namespace py = pybind11;

namespace {

// The number of additional columns decoded on either side of the rectangle. Chroma upsampling lacks
// a neighbour at the edge of the decoded area.
constexpr JDIMENSION kMargin = 2;

struct Part {
  JDIMENSION top, left, bottom, right;
};

struct Pixels {
  JSAMPLE* data;  // contiguous rows of width * channels
  JDIMENSION height, width;
  int channels;
};

// libjpeg reports errors by a call that must not return. No object between setjmp and longjmp has a
// destructor.
struct Errors : jpeg_error_mgr {
  std::jmp_buf leave;
};

[[noreturn]] void leave(j_common_ptr decoder) {
  std::longjmp(static_cast<Errors*>(decoder->err)->leave, 1);
}

// A warning says that the file is damaged or unusual; messages of level 0 and above are traces.
void leave_at_warning(j_common_ptr decoder, int level) {
  if (level < 0) leave(decoder);
}

bool is_plain(const jpeg_decompress_struct& d) {
  const bool colours = d.jpeg_color_space == JCS_YCbCr || d.jpeg_color_space == JCS_RGB ||
                       d.jpeg_color_space == JCS_GRAYSCALE;
  return colours && d.data_precision == 8 && !d.progressive_mode;
}

// Decodes the rows and columns of the rectangle, and some more columns on either side.
bool decode(jpeg_decompress_struct& d, unsigned scale, const Part& part, const Pixels& out) {
  jpeg_read_header(&d, TRUE);
  if (!is_plain(d)) return false;
  d.scale_num = 1;
  d.scale_denom = scale;
  d.out_color_space = out.channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
  jpeg_start_decompress(&d);
  if (d.output_height != out.height || d.output_width != out.width) return false;
  JDIMENSION first = part.left - std::min(part.left, kMargin);
  JDIMENSION columns = std::min(part.right + kMargin, out.width) - first;
  jpeg_crop_scanline(&d, &first, &columns);  // rounds both to block boundaries
  if (part.top > 0 && jpeg_skip_scanlines(&d, part.top) != part.top) return false;
  const std::size_t stride = std::size_t(out.width) * std::size_t(out.channels);
  while (d.output_scanline < part.bottom) {
    JSAMPROW row =
        out.data + d.output_scanline * stride + std::size_t(first) * std::size_t(out.channels);
    jpeg_read_scanlines(&d, &row, 1);
  }
  return true;
}

bool decode_part(const unsigned char* content, std::size_t size, unsigned scale, const Part& part,
                 const Pixels& out) {
  jpeg_decompress_struct decoder;
  Errors errors;
  decoder.err = jpeg_std_error(&errors);
  errors.error_exit = leave;
  errors.emit_message = leave_at_warning;
  volatile bool done = false;
  if (setjmp(errors.leave) == 0) {
    jpeg_create_decompress(&decoder);
    jpeg_mem_src(&decoder, content, static_cast<unsigned long>(size));
    done = decode(decoder, scale, part, out);
  }
  jpeg_destroy_decompress(&decoder);
  return done;
}

bool decode_region(const py::buffer& content, py::array_t<std::uint8_t, py::array::c_style> out,
                   unsigned scale, const Part& part) {
  const py::buffer_info bytes = content.request();
  if (bytes.ndim != 1 || bytes.itemsize != 1 || bytes.strides[0] != 1) {
    throw py::value_error("decode_region: content must be bytes next to each other");
  }
  if (out.ndim() != 3 || (out.shape(2) != 1 && out.shape(2) != 3)) {
    throw py::value_error("decode_region: out must be uint8 (H, W, 1) or (H, W, 3)");
  }
  const Pixels pixels{out.mutable_data(), JDIMENSION(out.shape(0)), JDIMENSION(out.shape(1)),
                      int(out.shape(2))};
  if (part.top >= part.bottom || part.bottom > pixels.height || part.left >= part.right ||
      part.right > pixels.width) {
    throw py::value_error("decode_region: the region must have pixels and lie inside of out");
  }
  const needle::bindings::WithoutGil released;
  return decode_part(static_cast<const unsigned char*>(bytes.ptr), std::size_t(bytes.size), scale,
                     part, pixels);
}

}  // namespace

PYBIND11_MODULE(jpeg_region, m) {
  m.doc() = "A part of a JPEG file, for needle.data.formats.decoding.";
  m.def(
      "decode_region",
      [](const py::buffer& content, py::array_t<std::uint8_t, py::array::c_style> out,
         unsigned scale, unsigned top, unsigned left, unsigned bottom, unsigned right) {
        return decode_region(content, std::move(out), scale, Part{top, left, bottom, right});
      },
      py::arg("content"), py::arg("out").noconvert(), py::arg("scale"), py::arg("top"),
      py::arg("left"), py::arg("bottom"), py::arg("right"),
      "Writes rows top to bottom and columns left to right of the image, decoded at 1/scale of\n"
      "its size, to the same place of `out`, and leaves the rest of `out` undefined. False,\n"
      "without an error, for a file that is damaged, progressive, CMYK, or of another size.");
}
