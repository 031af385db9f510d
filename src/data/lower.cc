#include "lower.h"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "canvas.h"
#include "core/check.h"
#include "instruction.h"
#include "parameters.h"
#include "resize_axis.h"

namespace needle::data {

namespace {

template <class T>
constexpr std::int32_t kWords = sizeof(T) / 4;

std::int32_t small(std::int64_t value) {
  if (std::abs(value) > std::numeric_limits<std::int32_t>::max()) {
    raise_error("run_images: on this device an image must span less than 2**31 elements");
  }
  return static_cast<std::int32_t>(value);
}

}  // namespace

class Lowering {
 public:
  explicit Lowering(const Program& program) : program_(program), type_(program.source_type_) {
    open_pass();
    for (const Instruction& step : program.instructions_) compile(step);
    close_pass(program.out_type_);
    set_output();
  }

  ImageBatch run(std::span<const SourceImage> images, std::span<const std::int64_t> offsets) {
    batch_.images = static_cast<std::int64_t>(images.size());
    for (ImagePass& pass : batch_.passes) {
      pass.records = static_cast<std::int64_t>(batch_.words.size());
      batch_.words.resize(batch_.words.size() + pass.record_words * images.size());
    }
    for (std::size_t i = 0; i < images.size(); ++i) fill(images[i], offsets[i], std::int64_t(i));
    return std::move(batch_);
  }

 private:
  // Where an instruction is lowered to: its pass, and the offset of its numbers in the record.
  struct Place {
    std::size_t pass;
    std::int32_t word;
    bool begins;  // true if the instruction begins a new window
  };

  ImagePass& pass() { return batch_.passes.back(); }
  void place(std::int32_t word, bool begins) {
    places_.push_back({batch_.passes.size() - 1, word, begins});
  }
  void take_size(const Instruction& step) {
    if (step.height > 0) height_ = step.height, width_ = step.width;
  }

  void open_pass() {
    batch_.passes.emplace_back();
    pass().channels = small(program_.channels_);
    pass().floats_in = type_ == Element::kFloat;
    pass().record_words = kWords<SourceRecord>;
    window_ = -1;
  }

  void close_pass(Element out) {
    if (pass().resampling == Resampling::kNone) pass().floats_between = pass().floats_in;
    pass().floats_out = out == Element::kFloat;
  }

  std::int32_t room(std::int32_t words) {
    const std::int32_t word = pass().record_words;
    pass().record_words += words;
    return word;
  }

  std::int32_t add_step(PassStep kind, std::int32_t word, double fill = 0) {
    if (pass().count == kMaxPassSteps) {
      raise_error("run_images: on this device at most " + std::to_string(kMaxPassSteps) +
                  " steps go together, got more; split the list of transforms");
    }
    pass().steps[pass().count++] = {kind, word, static_cast<float>(fill)};
    return word;
  }

  // A crop joins the previous window if both have the same fill and no step in between changes it;
  // a flip, which shows no fill, joins any window.
  void add_window(const Instruction& step) {
    const bool crops = step.row->kind == Kind::kCrop;
    const auto fill = static_cast<float>(step.fill);
    if (window_ >= 0 && crops) {
      ImagePass::Step& known = pass().steps[window_];
      const bool joins = window_ == pass().count - 1 && (!window_fills_ || known.fill == fill);
      if (joins) known.fill = fill;
      if (!joins) window_ = -1;
    }
    const bool begins = window_ < 0;
    if (begins) {
      add_step(PassStep::kWindow, room(kWords<WindowRecord>), fill);
      window_ = pass().count - 1;
      window_fills_ = false;
    }
    window_fills_ = window_fills_ || crops;
    place(pass().steps[window_].at, begins);
  }

  void add_resampling(const Instruction& step) {
    if (pass().resampling != Resampling::kNone) {
      close_pass(type_);
      ImagePass& done = pass();
      done.height = small(height_);
      done.width = small(width_);
      done.row_stride = width_ * program_.channels_;
      done.column_stride = program_.channels_;
      done.channel_stride = 1;
      open_pass();
    }
    const bool affine = step.row->kind == Kind::kAffine;
    ImagePass& now = pass();
    now.before = now.count;
    now.floats_between = type_ == Element::kFloat;
    now.resampling = affine
                         ? step.bilinear ? Resampling::kAffineBilinear : Resampling::kAffineNearest
                     : step.bilinear ? Resampling::kBilinear
                                     : Resampling::kNearest;
    now.resampling_at = room(affine ? kWords<AffineRecord> : kWords<ResizeRecord>);
    now.resampling_fill = static_cast<float>(step.fill);
    window_ = -1;
    place(now.resampling_at, true);
  }

  void compile(const Instruction& step) {
    switch (step.row->kind) {
      case Kind::kCrop:
      case Kind::kFlip: add_window(step); break;
      case Kind::kResize:
      case Kind::kAffine: add_resampling(step); break;
      case Kind::kErase:
        place(add_step(PassStep::kErase, room(kWords<EraseRecord>), step.fill), true);
        window_ = -1;
        break;
      case Kind::kColour:
        place(add_step(type_ == Element::kByte ? PassStep::kColourBytes : PassStep::kColourFloats,
                       room(kWords<ColourRecord>)),
              true);
        break;
      default: add_conversion(step);
    }
    take_size(step);
  }

  void add_conversion(const Instruction& step) {
    if (step.row->kind == Kind::kToFloat && type_ == Element::kByte) add_step(PassStep::kScale, 0);
    if (step.row->kind == Kind::kNormalize) {
      add_step(PassStep::kNormalize, small(std::int64_t(batch_.words.size())));
      for (const float number : step.numbers)
        batch_.words.push_back(std::bit_cast<std::uint32_t>(number));
    }
    type_ = Element::kFloat;
    place(0, false);
  }

  void set_output() {
    ImagePass& last = pass();
    last.height = small(program_.out_shape_[0]);
    last.width = small(program_.out_shape_[1]);
    last.row_stride = program_.out_strides_[0];
    last.column_stride = program_.out_strides_[1];
    last.channel_stride = program_.out_strides_[2];
    small(program_.out_size_);
    if (batch_.words.size() % 2 != 0) batch_.words.push_back(0);  // records begin at eight bytes
  }

  // ---- one image's records ----

  template <class T>
  void put(const Place& place, const T& record) {
    const ImagePass& target = batch_.passes[place.pass];
    std::memcpy(batch_.words.data() + target.records + sample_ * target.record_words + place.word,
                &record, sizeof record);
  }

  void fill(const SourceImage& image, std::int64_t offset, std::int64_t sample) {
    sample_ = sample;
    height_ = image.height;
    width_ = image.width;
    put({0, 0, true}, SourceRecord{offset, small(image.row_stride), small(image.column_stride),
                                   small(image.channel_stride), 0});
    for (std::size_t pass = 1; pass < batch_.passes.size(); ++pass) {
      const ImagePass& from = batch_.passes[pass - 1];
      put({pass, 0, true},
          SourceRecord{sample * from.height * from.row_stride, small(from.row_stride),
                       small(from.column_stride), small(from.channel_stride), 0});
    }
    for (std::size_t k = 0; k < places_.size(); ++k) {
      const Instruction& step = program_.instructions_[k];
      fill_step(step, places_[k], step.parameters_of(sample));
    }
    const std::int64_t* wanted = program_.out_shape_;
    if (height_ != wanted[0] || width_ != wanted[1]) refuse_size(height_, width_, wanted, sample);
  }

  void fill_step(const Instruction& step, const Place& place, const double* p) {
    const Parameters values{p, sample_, height_, width_};
    switch (step.row->kind) {
      case Kind::kCrop:
      case Kind::kFlip: fill_window(step, place, values); break;
      case Kind::kErase: {
        const Rectangle r = values.erased();
        put(place, EraseRecord{small(r.top), small(r.left), small(r.bottom), small(r.right)});
        break;
      }
      case Kind::kColour: {
        ColourRecord record{};
        record.changes = values.colour(record.matrix);
        put(place, record);
        break;
      }
      case Kind::kResize: fill_resize(step, place, values); break;
      case Kind::kAffine: {
        AffineRecord record{};
        values.affine(record.matrix);
        record.height = small(height_);
        record.width = small(width_);
        put(place, record);
        break;
      }
      default: break;
    }
    take_size(step);
  }

  void fill_window(const Instruction& step, const Place& place, const Parameters& values) {
    if (place.begins) {
      inside_ = {0, 0, height_, width_};
      row_ = column_ = {1, 0};
    }
    if (step.row->kind == Kind::kFlip) {
      if (values.flips(0)) column_.mirror(width_, inside_.left, inside_.right);
      if (values.flips(1)) row_.mirror(height_, inside_.top, inside_.bottom);
    } else {
      const auto [top, left] = values.crop();
      row_.first += row_.sign * top;
      column_.first += column_.sign * left;
      inside_ = intersection(
          {inside_.top - top, inside_.left - left, inside_.bottom - top, inside_.right - left},
          {0, 0, step.height, step.width});
    }
    put(place, WindowRecord{small(inside_.top), small(inside_.left), small(inside_.bottom),
                            small(inside_.right), small(row_.sign), small(row_.first),
                            small(column_.sign), small(column_.first)});
  }

  void fill_resize(const Instruction& step, const Place& place, const Parameters& values) {
    const Rectangle box = values.resized();
    const auto [down, down_stride] = table(step, place, box.height(), step.height);
    const auto [across, across_stride] = table(step, place, box.width(), step.width);
    put(place,
        ResizeRecord{small(box.top), small(box.left), down, down_stride, across, across_stride});
  }

  struct Table {
    std::int32_t begin, stride;
  };

  Table table(const Instruction& step, const Place& place, std::int64_t in, std::int64_t out) {
    const bool floats = batch_.passes[place.pass].floats_between;
    const auto key = std::tuple{in, out, step.bilinear, step.antialias, floats};
    const auto known = tables_.find(key);
    if (known != tables_.end()) return known->second;
    const Table made{small(std::int64_t(batch_.words.size())),
                     step.bilinear ? add_weights(in, out, step.antialias, floats) : 1};
    for (std::int64_t i = 0; !step.bilinear && i < out; ++i) {
      batch_.words.push_back(static_cast<std::uint32_t>(nearest_place(i, in, out)));
    }
    return tables_[key] = made;
  }

  // The words of an entry: the first position, the number of weights, the weights.
  std::int32_t add_weights(std::int64_t in, std::int64_t out, bool antialias, bool floats) {
    const ResizeAxis& axis = resize_axis(in, out, antialias, false);
    for (std::int64_t i = 0; i < out; ++i) {
      batch_.words.push_back(static_cast<std::uint32_t>(axis.first[i]));
      batch_.words.push_back(static_cast<std::uint32_t>(axis.count[i]));
      for (std::int64_t t = i * axis.taps; t < (i + 1) * axis.taps; ++t) {
        batch_.words.push_back(floats ? std::bit_cast<std::uint32_t>(axis.real[t])
                                      : static_cast<std::uint32_t>(std::int32_t(axis.weight[t])));
      }
    }
    return small(axis.taps + 2);
  }

  // Along one axis, position p of the window is position sign * p + first of the previous image.
  struct Along {
    std::int64_t sign, first;

    void mirror(std::int64_t size, std::int64_t& from, std::int64_t& to) {
      first += sign * (size - 1);
      sign = -sign;
      from = size - std::exchange(to, size - from);
    }
  };

  const Program& program_;
  ImageBatch batch_;
  Element type_;
  std::vector<Place> places_;
  int window_ = -1;            // the step that a crop or flip may join
  bool window_fills_ = false;  // a crop is part of it
  std::int64_t sample_ = 0, height_ = 0, width_ = 0;
  Rectangle inside_{};
  Along row_{1, 0}, column_{1, 0};
  std::map<std::tuple<std::int64_t, std::int64_t, bool, bool, bool>, Table> tables_;
};

ImageBatch lower(const Program& program, std::span<const SourceImage> images,
                 std::span<const std::int64_t> offsets) {
  return Lowering(program).run(images, offsets);
}

}  // namespace needle::data
