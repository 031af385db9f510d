# The Python module jpeg_region, where libjpeg-turbo and its headers are. NEEDLE_JPEG=on asks for it,
# off leaves it out; auto, the default, builds it if it can. Without it whole images are decoded, by
# simplejpeg.
if(NOT NEEDLE_JPEG MATCHES "^(on|off|auto)$")
  message(FATAL_ERROR "needle: NEEDLE_JPEG must be on, off or auto, got '${NEEDLE_JPEG}'")
elseif(NEEDLE_JPEG STREQUAL "off")
  return()
endif()

find_package(JPEG QUIET)
if(JPEG_FOUND)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LIBRARIES JPEG::JPEG)
  check_cxx_source_compiles("#include <cstdio>
#include <jpeglib.h>
static_assert(LIBJPEG_TURBO_VERSION_NUMBER >= 2001000);
int main() { return jpeg_crop_scanline != nullptr && jpeg_skip_scanlines != nullptr ? 0 : 1; }"
    NEEDLE_JPEG_WORKS)
endif()
if(NOT NEEDLE_JPEG_WORKS)
  string(CONCAT reason "libjpeg-turbo 2.1 or later, or its headers, were not found "
    "(Debian: libjpeg-dev, Fedora: libjpeg-turbo-devel, macOS: brew install jpeg-turbo)")
  if(NEEDLE_JPEG STREQUAL "on")
    message(FATAL_ERROR "needle: NEEDLE_JPEG=on, but ${reason}; install them or use auto")
  endif()
  message(STATUS "needle: JPEG files are decoded whole: ${reason}")
  return()
endif()

pybind11_add_module(jpeg_region MODULE NO_EXTRAS src/bindings/jpeg_module.cc)
target_link_libraries(jpeg_region PRIVATE needle_flags JPEG::JPEG)
if(SKBUILD)
  install(TARGETS jpeg_region DESTINATION needle/backend_ndarray)
else()
  set_target_properties(jpeg_region PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/python/needle/backend_ndarray")
endif()
