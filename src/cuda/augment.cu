// Runs a whole list of augmentation steps over a batch of images in one launch. A thread computes
// one output pixel (one value in images of many channels). It follows the pixel back through
// windows and erased rectangles to its source, reads it once, and applies colours and
// normalisation. Resizing and affine maps do so for each pixel that they interpolate. Nothing is
// written between steps, so the limit is reading the image and writing the output once.
// Neighbouring threads compute neighbouring pixels of a row. All threads of a block work on one
// image and take the same steps; they diverge only at the border of a rectangle.
//
// The formulas are those of core/pixel_formulas.h, as on the CPU. This file is compiled without
// fused multiplication and addition (--fmad=false), so the results equal the CPU's bit for bit.
#include "augment.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "allocator.h"
#include "core/pixel_formulas.h"
#include "walk.h"

namespace needle::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kMostImages = 65535;  // of a launch: blockIdx.y

struct Job {
  ImagePass pass;
  const void* images;
  const std::uint32_t* words;
  void* out;
  std::int64_t image_size;   // of the output, in elements
  std::int64_t first_image;  // of blockIdx.y = 0
  Divisor width;
};

template <int kChannels>
struct Pixel {
  float values[kChannels];  // byte images have integral values
};

// One image of the job, as one thread reads it.
template <int kChannels>
struct Sample {
  using P = Pixel<kChannels>;
  const Job& job;
  const std::uint32_t* record;
  int channel;  // the first channel of this thread

  template <class T>
  __device__ const T& numbers(int word) const {
    return *reinterpret_cast<const T*>(record + word);
  }

  __device__ P read(int y, int x) const {
    const auto& source = numbers<SourceRecord>(0);
    const std::int64_t origin = source.offset + std::int64_t(y) * source.row_stride +
                                std::int64_t(x) * source.column_stride;
    P pixel;
    for (int c = 0; c < kChannels; ++c) {
      const std::int64_t place = origin + std::int64_t(channel + c) * source.channel_stride;
      pixel.values[c] = job.pass.floats_in
                            ? static_cast<const float*>(job.images)[place]
                            : float(static_cast<const std::uint8_t*>(job.images)[place]);
    }
    return pixel;
  }

  static __device__ P filled(float value) {
    P pixel;
    for (int c = 0; c < kChannels; ++c) pixel.values[c] = value;
    return pixel;
  }

  __device__ void mix(const float* m, bool bytes, P& pixel) const {
    float sums[kChannels];
    for (int c = 0; c < kChannels; ++c) {
      float sum = m[4 * c] * pixel.values[0];
      for (int k = 1; k < kChannels; ++k) sum = sum + m[4 * c + k] * pixel.values[k];
      sums[c] = sum + m[4 * c + 3];
    }
    for (int c = 0; c < kChannels; ++c) {
      pixel.values[c] = bytes ? float(pixel::to_byte(sums[c])) : pixel::clip(sums[c], 1.0f);
    }
  }

  __device__ void change(const ImagePass::Step& step, P& pixel) const {
    switch (step.kind) {
      case PassStep::kColourBytes:
      case PassStep::kColourFloats: {
        const auto& colour = numbers<ColourRecord>(step.at);
        if (colour.changes) mix(colour.matrix, step.kind == PassStep::kColourBytes, pixel);
        break;
      }
      case PassStep::kScale:
        for (float& value : pixel.values) value = pixel::scaled(value);
        break;
      case PassStep::kNormalize:
        for (int c = 0; c < kChannels; ++c) {
          const auto* means = reinterpret_cast<const float*>(job.words + step.at) + channel + c;
          pixel.values[c] = (pixel.values[c] - means[0]) / means[job.pass.channels];
        }
        break;
      default: break;
    }
  }

  // Computes pixel (y, x) after the steps [begin, end), whose input is source(y, x).
  template <class F>
  __device__ P after(int begin, int end, int y, int x, F&& source) const {
    P pixel;
    int s = end;
    bool found = false;
    while (s > begin && !found) {
      const ImagePass::Step& step = job.pass.steps[s - 1];
      if (step.kind == PassStep::kWindow) {
        const auto& w = numbers<WindowRecord>(step.at);
        found = y < w.top || y >= w.bottom || x < w.left || x >= w.right;
        y = w.row_sign * y + w.row;
        x = w.column_sign * x + w.column;
      } else if (step.kind == PassStep::kErase) {
        const auto& e = numbers<EraseRecord>(step.at);
        found = y >= e.top && y < e.bottom && x >= e.left && x < e.right;
      }
      if (found) {
        pixel = filled(step.fill);
      } else {
        --s;
      }
    }
    if (!found) pixel = source(y, x);
    for (; s < end; ++s) change(job.pass.steps[s], pixel);
    return pixel;
  }

  // Returns pixel (y, x) of the resampling's input: the image after the steps [0, before).
  __device__ P before(int y, int x) const {
    return after(0, job.pass.before, y, x, [this](int v, int u) { return read(v, u); });
  }

  __device__ P nearest(int y, int x) const {
    const auto& r = numbers<ResizeRecord>(job.pass.resampling_at);
    return before(r.top + int(job.words[r.down + y]), r.left + int(job.words[r.across + x]));
  }

  // Resizes vertically first, as the definition does: sums of columns, then the sum of these.
  __device__ P bilinear(int y, int x) const {
    const auto& r = numbers<ResizeRecord>(job.pass.resampling_at);
    const std::uint32_t* down = job.words + r.down + y * r.down_stride;
    const std::uint32_t* across = job.words + r.across + x * r.across_stride;
    return job.pass.floats_between ? sum_floats(r, down, across) : sum_bytes(r, down, across);
  }

  __device__ P sum_bytes(const ResizeRecord& r, const std::uint32_t* down,
                         const std::uint32_t* across) const {
    int sums[kChannels];
    for (int& sum : sums) sum = pixel::kOutHalf;
    for (int j = 0; j < int(across[1]); ++j) {
      int lines[kChannels];
      for (int& line : lines) line = pixel::kLineHalf;
      for (int i = 0; i < int(down[1]); ++i) {
        const P p = before(r.top + int(down[0]) + i, r.left + int(across[0]) + j);
        for (int c = 0; c < kChannels; ++c) lines[c] += int(down[2 + i]) * int(p.values[c]);
      }
      for (int c = 0; c < kChannels; ++c) {
        sums[c] += int(across[2 + j]) * (lines[c] >> pixel::kLineShift);
      }
    }
    P pixel;
    for (int c = 0; c < kChannels; ++c) pixel.values[c] = float(sums[c] >> pixel::kOutShift);
    return pixel;
  }

  __device__ P sum_floats(const ResizeRecord& r, const std::uint32_t* down,
                          const std::uint32_t* across) const {
    const auto* down_weights = reinterpret_cast<const float*>(down + 2);
    const auto* across_weights = reinterpret_cast<const float*>(across + 2);
    P sums = filled(0);
    for (int j = 0; j < int(across[1]); ++j) {
      P lines = filled(0);
      for (int i = 0; i < int(down[1]); ++i) {
        const P p = before(r.top + int(down[0]) + i, r.left + int(across[0]) + j);
        for (int c = 0; c < kChannels; ++c) {
          const float part = p.values[c] * down_weights[i];
          lines.values[c] = i == 0 ? part : lines.values[c] + part;
        }
      }
      for (int c = 0; c < kChannels; ++c) {
        const float part = lines.values[c] * across_weights[j];
        sums.values[c] = j == 0 ? part : sums.values[c] + part;
      }
    }
    return sums;
  }

  // Computes pixel (y, x) of an affine map's input, or the fill if it is out of bounds.
  __device__ P corner(const AffineRecord& a, double y, double x) const {
    const bool inside = x >= 0 && x < double(a.width) && y >= 0 && y < double(a.height);
    return inside ? before(int(y), int(x)) : filled(job.pass.resampling_fill);
  }

  __device__ P affine_nearest(int y, int x) const {
    const auto& a = numbers<AffineRecord>(job.pass.resampling_at);
    const double* m = a.matrix;
    const double at_x = pixel::place(m[0], x, m[1] * double(y), m[2]);
    const double at_y = pixel::place(m[3], x, m[4] * double(y), m[5]);
    return corner(a, floor(at_y + 0.5), floor(at_x + 0.5));
  }

  __device__ P affine_bilinear(int y, int x) const {
    const auto& a = numbers<AffineRecord>(job.pass.resampling_at);
    const double* m = a.matrix;
    double at_x = pixel::place(m[0], x, m[1] * double(y), m[2]);
    double at_y = pixel::place(m[3], x, m[4] * double(y), m[5]);
    if (!job.pass.floats_between) {  // rounded to the nearest fraction, exactly
      at_x = pixel::in_units(at_x) * (1.0 / pixel::kUnit);
      at_y = pixel::in_units(at_y) * (1.0 / pixel::kUnit);
    }
    const double left = floor(at_x), top = floor(at_y);
    const double u = at_x - left, v = at_y - top;
    P corners[4];
    for (int k = 0; k < 4; ++k) corners[k] = corner(a, top + k / 2, left + k % 2);
    P pixel;
    for (int c = 0; c < kChannels; ++c) {
      const float x4[4] = {corners[0].values[c], corners[1].values[c], corners[2].values[c],
                           corners[3].values[c]};
      if (job.pass.floats_between) {
        pixel.values[c] = pixel::mixed(x4, float(u), float(v));
      } else {
        const int whole[4] = {int(x4[0]), int(x4[1]), int(x4[2]), int(x4[3])};
        pixel.values[c] = float(pixel::mixed(whole, int(u * pixel::kUnit), int(v * pixel::kUnit)));
      }
    }
    return pixel;
  }

  template <Resampling kResampling>
  __device__ P resampled(int y, int x) const {
    if constexpr (kResampling == Resampling::kNearest) return nearest(y, x);
    if constexpr (kResampling == Resampling::kBilinear) return bilinear(y, x);
    if constexpr (kResampling == Resampling::kAffineNearest) return affine_nearest(y, x);
    if constexpr (kResampling == Resampling::kAffineBilinear) return affine_bilinear(y, x);
    return before(y, x);
  }

  __device__ void write(int y, int x, std::int64_t image, const P& pixel) const {
    const ImagePass& pass = job.pass;
    const std::int64_t origin =
        image * job.image_size + y * pass.row_stride + x * pass.column_stride;
    for (int c = 0; c < kChannels; ++c) {
      const std::int64_t place = origin + (channel + c) * pass.channel_stride;
      if (pass.floats_out) {
        static_cast<float*>(job.out)[place] = pixel.values[c];
      } else {
        static_cast<std::uint8_t*>(job.out)[place] = static_cast<std::uint8_t>(pixel.values[c]);
      }
    }
  }
};

// blockIdx.x selects the pixels and blockIdx.y the image. If a thread does not compute all channels
// (kChannels), blockIdx.z selects the channel.
template <int kChannels, Resampling kResampling>
__global__ void __launch_bounds__(kThreads, 4) augment_kernel(const __grid_constant__ Job job) {
  const std::uint32_t pixel = blockIdx.x * kThreads + threadIdx.x;
  if (pixel >= std::uint32_t(job.pass.height) * std::uint32_t(job.pass.width)) return;
  const int y = int(job.width.quotient(pixel)), x = int(pixel) - y * job.pass.width;
  const std::int64_t image = job.first_image + blockIdx.y;
  const Sample<kChannels> sample{job, job.words + job.pass.records + image * job.pass.record_words,
                                 int(blockIdx.z)};
  const auto source = [&](int v, int u) { return sample.template resampled<kResampling>(v, u); };
  sample.write(y, x, image, sample.after(job.pass.before, job.pass.count, y, x, source));
}

template <int kChannels>
void launch_job(const Job& job, dim3 blocks, int device) {
  const auto start = [&]<Resampling kResampling>() {
    launch("run_images", device, blocks, {kThreads}, augment_kernel<kChannels, kResampling>, job);
  };
  switch (job.pass.resampling) {
    case Resampling::kNone: return start.template operator()<Resampling::kNone>();
    case Resampling::kNearest: return start.template operator()<Resampling::kNearest>();
    case Resampling::kBilinear: return start.template operator()<Resampling::kBilinear>();
    case Resampling::kAffineNearest: return start.template operator()<Resampling::kAffineNearest>();
    case Resampling::kAffineBilinear: break;
  }
  start.template operator()<Resampling::kAffineBilinear>();
}

void run_pass(Job job, std::int64_t images, int device) {
  const ImagePass& pass = job.pass;
  const std::int64_t pixels = std::int64_t(pass.height) * pass.width;
  job.image_size = pixels * pass.channels;
  if (job.image_size == 0) return;
  job.width = Divisor(pass.width);
  const bool pixelwise = pass.channels == 3;
  const auto across = static_cast<unsigned>(ceil_div<std::int64_t>(pixels, kThreads));
  for (std::int64_t done = 0; done < images; done += kMostImages) {
    job.first_image = done;
    const auto count = static_cast<unsigned>(std::min(kMostImages, images - done));
    const dim3 blocks{across, count, pixelwise ? 1u : unsigned(pass.channels)};
    pixelwise ? launch_job<3>(job, blocks, device) : launch_job<1>(job, blocks, device);
  }
}

std::size_t bytes_of(const ImagePass& pass, std::int64_t images) {
  return std::size_t(images) * pass.height * pass.width * pass.channels *
         (pass.floats_out ? sizeof(float) : 1);
}

}  // namespace

void run_passes(const ImageBatch& batch, const void* images, const std::uint32_t* words, void* out,
                int device) {
  Job job{};
  job.words = words;
  job.images = images;
  std::vector<std::unique_ptr<Temporary>> between;
  for (std::size_t i = 0; i < batch.passes.size(); ++i) {
    job.pass = batch.passes[i];
    job.out = out;
    if (i + 1 < batch.passes.size()) {
      const std::size_t bytes = bytes_of(job.pass, batch.images);
      between.push_back(std::make_unique<Temporary>(bytes, device));
      job.out = between.back()->as<void>();
    }
    run_pass(job, batch.images, device);
    job.images = job.out;
  }
}

}  // namespace needle::cuda
