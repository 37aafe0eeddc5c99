#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tasks/diffuse/class_judge.h"
#include "tasks/diffuse/picture_set.h"

namespace hearth::tasks {
namespace {

/// A grid has pixels of this color between its pictures.
constexpr uint8_t kGap = 64;

class ClassTranslator : public PictureTranslator {
 public:
  ClassTranslator(std::vector<std::string> names, int64_t num_classes, int64_t channels)
      : names_(std::move(names)), num_classes_(num_classes), channels_(channels) {}
  std::vector<Condition> conditions(std::span<const std::string> prompts) const override {
    std::vector<Condition> made;
    for (const std::string& prompt : prompts) made.push_back(condition(prompt));
    return made;
  }
  Condition no_condition() const override {
    return {.label = static_cast<int32_t>(num_classes_), .text = {}, .pooled = {}};
  }
  data::Image picture(std::span<const float> latents, Extent size) const override {
    return data::image_of(latents, channels_, size);
  }

 private:
  Condition condition(const std::string& prompt) const {
    const auto found = std::ranges::find(names_, prompt);
    if (found == names_.end())
      user_error("expected a class that the model knows as prompt ({}), got '{}'{}", fmt::join(names_, ", "),
                 prompt, did_you_mean(prompt, names_));
    return {.label = static_cast<int32_t>(found - names_.begin()), .text = {}, .pooled = {}};
  }

  std::vector<std::string> names_;
  int64_t num_classes_, channels_;
};

class LabeledPictures : public PictureSet {
 public:
  explicit LabeledPictures(const LabeledPicturesOptions& options)
      : options_(options),
        train_images_(data::open_dataset(options.train)),
        held_out_images_(data::open_dataset(options.held_out)),
        train_(*train_images_, options.flip),
        held_out_(*held_out_images_),
        translator_(class_translator(names(), options.num_classes, train_images_->channels())) {
    if (std::ssize(names()) > options.num_classes)
      user_error(
          "expected at most the {} classes of the model, got {} in {}; try \"num_classes\": {} in "
          "model.config",
          options.num_classes, names().size(), options.train.path.string(), names().size());
  }

  const data::LatentSource& train() const override { return train_; }
  const data::LatentSource& held_out() const override { return held_out_; }
  std::string describe() const override {
    const Extent size = train_images_->image_size();
    return fmt::format("{} training and {} validation pictures of {} classes, {}x{} pixels", train_.size(),
                       held_out_.size(), names().size(), size.width, size.height);
  }
  std::vector<std::string> prompts() const override { return names(); }
  const PictureTranslator* translator() const override { return translator_.get(); }
  std::optional<double> agreement(std::span<const std::vector<float>> pictures,
                                  std::span<const int32_t> labels) const override {
    const ClassJudge judge(*train_images_, options_.seed, options_.num_threads);
    const std::vector<int32_t> seen = judge.classes(pictures);
    int64_t right = 0;
    for (size_t i = 0; i < seen.size(); ++i) right += seen[i] == labels[i] ? 1 : 0;
    return static_cast<double>(right) / static_cast<double>(seen.size());
  }

 private:
  const std::vector<std::string>& names() const { return train_images_->class_names(); }

  LabeledPicturesOptions options_;
  std::unique_ptr<data::Dataset> train_images_, held_out_images_;
  data::PixelLatents train_, held_out_;
  std::unique_ptr<PictureTranslator> translator_;
};

}  // namespace

std::unique_ptr<PictureTranslator> class_translator(std::vector<std::string> names, int64_t num_classes,
                                                    int64_t channels) {
  return std::make_unique<ClassTranslator>(std::move(names), num_classes, channels);
}

std::unique_ptr<PictureSet> labeled_pictures(const LabeledPicturesOptions& options) {
  return std::make_unique<LabeledPictures>(options);
}

data::Image picture_grid(std::span<const data::Image> pictures, int64_t columns) {
  HEARTH_CHECK(!pictures.empty());
  const data::Image& first = pictures[0];
  const int64_t rows = (std::ssize(pictures) + columns - 1) / columns;
  data::Image grid{.height = rows * (first.height + 1) - 1,
                   .width = columns * (first.width + 1) - 1,
                   .channels = first.channels};
  grid.pixels.assign(static_cast<size_t>(grid.height * grid.width * grid.channels), kGap);
  for (int64_t i = 0; i < std::ssize(pictures); ++i) {
    const data::Image& one = pictures[static_cast<size_t>(i)];
    HEARTH_CHECK(one.size() == first.size() && one.channels == first.channels);
    const int64_t top = i / columns * (first.height + 1), left = i % columns * (first.width + 1);
    for (int64_t y = 0; y < one.height; ++y) {
      const uint8_t* row = one.pixels.data() + y * one.width * one.channels;
      std::copy(row, row + one.width * one.channels,
                grid.pixels.data() + ((top + y) * grid.width + left) * grid.channels);
    }
  }
  return grid;
}

}  // namespace hearth::tasks
