// Trail 28 of 30: Run.go_on: steps move a window over the image; pixels move once, at the end.
// Next: python/needle/data/batching/pipeline.py

// Runs the instructions on one image. Crops and flips move the window of a Canvas; pointwise steps
// are deferred to the pass that writes the pixels; resize and affine make a new Canvas. Memory
// between steps belongs to the thread and is taken and released as the calls nest.
#include <algorithm>

#include "canvas.h"
#include "core/check.h"
#include "core/scratch.h"
#include "parameters.h"
#include "program.h"

namespace needle::data {

// The state of one image while the instructions run.
struct Run {
  const Program& program;
  std::int64_t sample;
  void* out;

  std::int64_t channels() const { return program.channels_; }

  Parameters parameters(const double* p, const Canvas& canvas) const {
    return {p, sample, canvas.height, canvas.width};
  }

  // Computes the fill value of each channel after the remaining stages.
  void fill_values(const Canvas& canvas, const Filling& filling, float* values) const {
    const std::int64_t n = channels();
    std::fill_n(values, n, static_cast<float>(filling.value));
    Element type = canvas.source_type;
    for (int i = 0; i < canvas.stage_count; ++i) {
      const Stage& stage = canvas.stages[i];
      const bool applies = i >= filling.stages;
      if (stage.kind == StageKind::kColour) {
        if (applies) mix(values, type, stage.numbers);
        continue;
      }
      type = Element::kFloat;
      if (!applies) continue;
      for (std::int64_t c = 0; c < n; ++c) {
        if (stage.kind == StageKind::kScale) values[c] = values[c] / 255.0f;
        if (stage.kind == StageKind::kNormalize) {
          values[c] = (values[c] - stage.numbers[c]) / stage.numbers[n + c];
        }
      }
    }
  }

  // Returns the byte that the canvas shows outside of its source, before all stages; -1 if it is
  // not a byte.
  static int byte_outside(const Canvas& canvas) {
    const bool is_byte = canvas.source_type == Element::kByte && canvas.outside.stages == 0;
    return is_byte ? static_cast<int>(canvas.outside.value) : -1;
  }

  void mix(float* values, Element type, const float* m) const {
    const std::int64_t n = channels();
    if (type == Element::kFloat) {
      const Image<float> pixel{values, 1, 1, n, n, n, 1};
      return program.table_->floats.colour(pixel, pixel, m);
    }
    std::uint8_t bytes[3] = {};
    for (std::int64_t c = 0; c < n && c < 3; ++c) bytes[c] = static_cast<std::uint8_t>(values[c]);
    const Image<std::uint8_t> pixel{bytes, 1, 1, n, n, n, 1};
    program.table_->bytes.colour(pixel, pixel, m);
    for (std::int64_t c = 0; c < n && c < 3; ++c) values[c] = bytes[c];
  }

  // Writes the canvas as it is now to memory of the given type and strides.
  void emit(const Canvas& canvas, void* to, Element type, const std::int64_t strides[3]) const {
    const ThreadScratch scratch((canvas.erased_count + 1) * channels() * sizeof(float));
    float* values = scratch.as<float>();
    std::fill_n(values, channels(), 0.0f);
    if (!canvas.whole()) fill_values(canvas, canvas.outside, values);
    Erased erased[kMaxPending];
    int erased_count = 0;
    for (int i = 0; i < canvas.erased_count; ++i) {
      if (canvas.erased[i].where.empty()) continue;
      float* own = values + (i + 1) * channels();
      fill_values(canvas, canvas.erased[i].filling, own);
      erased[erased_count++] = {canvas.erased[i].where, own};
    }
    Stage stages[kMaxPending + 1];
    int stage_count = canvas.stage_count;
    std::copy_n(canvas.stages, stage_count, stages);
    if (type != canvas.type) stages[stage_count++] = {StageKind::kCast, nullptr};
    program.table_->emit({canvas, channels(), values, byte_outside(canvas), stages, stage_count,
                          erased, erased_count, to, type, strides[0], strides[1], strides[2]});
  }

  // Writes the canvas to memory and calls next() with the canvas that shows that memory.
  template <class F>
  void settle(const Canvas& canvas, F&& next) const {
    const std::int64_t c = channels();
    if (canvas.height > 0 && canvas.width > 0 && c > 0 &&
        canvas.height > kMaxElements / c / canvas.width) {
      parameters(nullptr, canvas)
          .refuse_here("image", "between steps it must have at most 2**31 elements");
    }
    const ThreadScratch memory(canvas.height * canvas.width * c * size_of(canvas.type));
    const std::int64_t strides[3] = {canvas.width * c, c, 1};
    emit(canvas, memory.as<void>(), canvas.type, strides);
    Canvas settled;
    start(settled, memory.as<void>(), canvas.type, canvas.height, canvas.width);
    next(settled);
  }

  // Makes the canvas show a whole compact image.
  void start(Canvas& canvas, const void* data, Element type, std::int64_t height,
             std::int64_t width) const {
    canvas.data = data;
    canvas.source_type = canvas.type = type;
    canvas.height = height;
    canvas.width = width;
    canvas.inside = {0, 0, height, width};
    canvas.row_stride = width * channels();
    canvas.column_stride = channels();
    canvas.channel_stride = 1;
  }

  template <class T>
  Image<T> image_of(const Canvas& canvas) const {
    return {static_cast<T*>(const_cast<void*>(canvas.data)),
            canvas.height,
            canvas.width,
            channels(),
            canvas.row_stride,
            canvas.column_stride,
            canvas.channel_stride};
  }

  // ---- the steps; each returns false if the canvas must be written to memory first ----

  bool crop(const Instruction& step, const double* p, Canvas& canvas) const {
    const auto [top, left] = parameters(p, canvas).crop();
    const bool reaches_out = top < 0 || left < 0 || top + step.height > canvas.height ||
                             left + step.width > canvas.width;
    if (reaches_out) {
      const Filling filling{step.fill, canvas.stage_count};
      const bool same =
          canvas.outside.value == filling.value && canvas.outside.stages == filling.stages;
      if (!canvas.whole() && !same) return false;  // two different fills
      canvas.outside = filling;
    }
    take_window(canvas, {top, left, top + step.height, left + step.width});
    return true;
  }

  bool flip(const double* p, Canvas& canvas) const {
    for (int i = 0; i < 2; ++i) {
      if (parameters(p, canvas).flips(i)) mirror(canvas, i == 0);
    }
    return true;
  }

  bool erase(const Instruction& step, const double* p, Canvas& canvas) const {
    const Rectangle where = parameters(p, canvas).erased();
    if (where.empty()) return true;
    if (canvas.erased_count == kMaxPending) return false;
    canvas.erased[canvas.erased_count++] = {where, {step.fill, canvas.stage_count}};
    return true;
  }

  bool pointwise(const Instruction& step, const double* p, Canvas& canvas) const {
    if (canvas.stage_count + 2 > kMaxPending) return false;
    if (step.row->kind == Kind::kColour) {
      float* m = canvas.colours[canvas.colour_count];
      if (!parameters(p, canvas).colour(m)) return true;
      ++canvas.colour_count;
      canvas.stages[canvas.stage_count++] = {StageKind::kColour, m};
      return true;
    }
    const bool scales = step.row->kind == Kind::kToFloat;
    if (canvas.type == Element::kByte) {
      canvas.stages[canvas.stage_count++] = {scales ? StageKind::kScale : StageKind::kCast,
                                             nullptr};
    }
    canvas.type = Element::kFloat;
    if (!scales) {
      canvas.stages[canvas.stage_count++] = {StageKind::kNormalize, step.numbers.data()};
    }
    return true;
  }

  // Sets which part of a resized image is computed: the window of a crop that follows, or all of
  // it.
  void wanted_part(std::size_t index, const Instruction& step, Canvas& resized) const {
    resized.inside = {0, 0, step.height, step.width};
    if (index + 1 == program.instructions_.size()) return;
    const Instruction& next = program.instructions_[index + 1];
    if (next.row->kind != Kind::kCrop) return;
    const auto [top, left] =
        Parameters{next.parameters_of(sample), sample, step.height, step.width}.crop();
    const Rectangle part =
        intersection(resized.inside, {top, left, top + next.height, left + next.width});
    if (part.empty()) return;
    resized.inside = part;
    resized.outside = {next.fill, 0};  // the fill of the crop, if it reaches outside
  }

  // Resizes a plain canvas or, if m is not null, applies the affine map m to it. The result goes
  // directly to `out` if possible, otherwise to memory.
  template <class T>
  void transform(std::size_t index, const Instruction& step, const double* m,
                 const Canvas& canvas) const {
    const std::int64_t c = channels();
    const bool last = index + 1 == program.instructions_.size() && program.axes_[0] == 0 &&
                      program.axes_[1] == 1 && canvas.type == program.out_type_ &&
                      step.height == program.out_shape_[0] && step.width == program.out_shape_[1];
    Canvas next;
    start(next, nullptr, canvas.type, step.height, step.width);
    if (m == nullptr) wanted_part(index, step, next);
    const Rectangle& part = next.inside;
    next.row_stride = part.width() * c;
    const ThreadScratch memory(last ? 0 : part.height() * part.width() * c * sizeof(T));
    T* const made = last ? static_cast<T*>(out) : memory.as<T>();
    const Image<T> in = image_of<T>(canvas);
    const Image<T> result{made, part.height(), part.width(), c, next.row_stride, c, 1};
    const Scaling scaling{step.height, step.width, part, step.bilinear, step.antialias};
    const ImageSteps<T>& steps = program.table_->of<T>();
    m == nullptr ? steps.resize(in, result, scaling)
                 : steps.affine(in, result, m, step.bilinear, step.fill);
    if (last) return;
    next.data = made;
    go_on(index + 1, next);
  }

  void transform(std::size_t index, const double* p, const Canvas& canvas) const {
    const Instruction& step = program.instructions_[index];
    double m[6];
    const bool affine = step.row->kind == Kind::kAffine;
    if (affine) parameters(p, canvas).affine(m);
    canvas.type == Element::kByte
        ? transform<std::uint8_t>(index, step, affine ? m : nullptr, canvas)
        : transform<float>(index, step, affine ? m : nullptr, canvas);
  }

  void resize(std::size_t index, const double* p, Canvas& canvas) const {
    take_window(canvas, parameters(p, canvas).resized());
    if (canvas.plain()) return transform(index, p, canvas);
    settle(canvas, [&](const Canvas& settled) { transform(index, p, settled); });
  }

  void go_on(std::size_t index, Canvas& canvas) const {
    for (; index < program.instructions_.size(); ++index) {
      const Instruction& step = program.instructions_[index];
      const double* p = step.parameters_of(sample);
      bool done = true;
      switch (step.row->kind) {
        case Kind::kCrop: done = crop(step, p, canvas); break;
        case Kind::kFlip: done = flip(p, canvas); break;
        case Kind::kErase: done = erase(step, p, canvas); break;
        case Kind::kColour:
        case Kind::kToFloat:
        case Kind::kNormalize: done = pointwise(step, p, canvas); break;
        case Kind::kResize: return resize(index, p, canvas);
        case Kind::kAffine:
          if (canvas.plain()) return transform(index, p, canvas);
          done = false;
          break;
        case Kind::kPermute: break;  // in the program's axes
      }
      if (!done) return settle(canvas, [&](Canvas& settled) { go_on(index, settled); });
    }
    finish(canvas);
  }

  void finish(const Canvas& canvas) const {
    const std::int64_t* wanted = program.out_shape_;
    if (canvas.height != wanted[0] || canvas.width != wanted[1]) {
      refuse_size(canvas.height, canvas.width, wanted, sample);
    }
    if (program.out_size_ > 0) emit(canvas, out, program.out_type_, program.out_strides_);
  }
};

void Program::run(const SourceImage& image, std::int64_t sample, void* out) const {
  const Run run{*this, sample, out};
  Canvas canvas;
  run.start(canvas, image.data, source_type_, image.height, image.width);
  canvas.row_stride = image.row_stride;
  canvas.column_stride = image.column_stride;
  canvas.channel_stride = image.channel_stride;
  run.go_on(0, canvas);
}

}  // namespace needle::data
