#include "base/error.h"
#include "base/text.h"
#include "data/masks/mask_folder.h"
#include "data/masks/masks.h"
#include "data/masks/outlined_masks.h"
#include "data/read_check.h"
#include "data/shapes.h"

namespace hearth::data {
namespace {

/// Generated images of one shape and their masks. Class 0 is the background; class 1 + i is shape i of
/// shape_names().
class ShapeMasks : public MaskedImages {
 public:
  explicit ShapeMasks(const MaskOptions& options)
      : size_(options.image_size), count_(options.count), seed_(seed_of_split(options.seed, options.split)) {
    check_shapes(size_, count_);
    classes_ = {{"background", {}}};
    for (const std::string& name : shape_names())
      classes_.push_back({name, palette_color(std::ssize(classes_))});
  }

  int64_t size() const override { return count_; }
  void read(int64_t index, Image& image, Image& mask) const override {
    shape_into(image, 3);
    shape_into(mask, 1);
    const int32_t label = draw_shape(seed_, index, size_, image.pixels.data(), mask.pixels.data()).label;
    for (uint8_t& pixel : mask.pixels) pixel = pixel == 0 ? 0 : static_cast<uint8_t>(1 + label);
  }
  void read_mask(int64_t index, Image& mask) const override {
    thread_local Image image;
    read(index, image, mask);
  }

 private:
  void shape_into(Image& image, int64_t channels) const {
    image.height = size_.height;
    image.width = size_.width;
    image.channels = channels;
    image.pixels.resize(static_cast<size_t>(size_.num_pixels() * channels));
  }

  Extent size_;
  int64_t count_;
  uint64_t seed_;
};

/// The readable images and masks of a set, for MaskOptions::skip_bad.
class ReadableMasks : public MaskedImages {
 public:
  ReadableMasks(std::unique_ptr<MaskedImages> all, ReadCheck check)
      : all_(std::move(all)), readable_(std::move(check.readable)) {
    classes_ = all_->classes();
    notes_ = all_->notes();
    notes_.push_back(describe_skipped({readable_, std::move(check.faults)}, "images with masks"));
  }
  int64_t size() const override { return std::ssize(readable_); }
  void read(int64_t index, Image& image, Image& mask) const override {
    all_->read(place(index), image, mask);
  }
  void read_mask(int64_t index, Image& mask) const override { all_->read_mask(place(index), mask); }
  std::string where(int64_t index) const override { return all_->where(place(index)); }

 private:
  int64_t place(int64_t index) const { return readable_.at(static_cast<size_t>(index)); }

  std::unique_ptr<MaskedImages> all_;
  std::vector<int64_t> readable_;
};

std::unique_ptr<MaskedImages> without_unreadable(std::unique_ptr<MaskedImages> all, int num_threads) {
  ReadCheck check = check_reading(all->size(), num_threads, [&](int64_t index) {
    thread_local Image image, mask;
    all->read(index, image, mask);
  });
  if (check.faults.empty()) return all;
  return std::make_unique<ReadableMasks>(std::move(all), std::move(check));
}

}  // namespace

std::vector<std::string> mask_kinds() { return {"shapes", "masks"}; }

std::unique_ptr<MaskedImages> open_masks(const MaskOptions& options) {
  if (options.split != "train" && options.split != "test")
    user_error("expected data.split 'train' or 'test', got '{}'", options.split);
  if (options.kind == "shapes") return std::make_unique<ShapeMasks>(options);
  if (options.kind == "masks") {
    auto images = is_outlined(options) ? open_outlined_masks(options) : open_mask_folder(options);
    return options.skip_bad ? without_unreadable(std::move(images), options.num_threads) : std::move(images);
  }
  user_error("expected data.kind shapes or masks for segmentation, got '{}'{}", options.kind,
             did_you_mean(options.kind, mask_kinds()));
}

MaskDecision decide_masks(const MaskOptions& train, const MaskOptions& held_out) {
  return is_outlined(train) ? decide_outlined_masks(train, held_out) : decide_mask_folder(train, held_out);
}

}  // namespace hearth::data
