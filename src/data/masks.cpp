#include "data/masks.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/mask_folder.h"
#include "data/outlined_masks.h"
#include "data/read_check.h"
#include "data/shapes.h"

namespace hearth::data {

namespace {

/// One shape on a background: class 0 is the background, class 1 + label the shape.
class ShapeMasks : public MaskedImages {
 public:
  explicit ShapeMasks(const MaskOptions& options)
      : size_(options.image_size), count_(options.count), seed_(series_of(options.seed, options.split)) {
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

/// The pairs of a set that can be read.
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

std::unique_ptr<MaskedImages> without_bad(std::unique_ptr<MaskedImages> all, int num_threads) {
  ReadCheck check = check_reading(all->size(), num_threads, [&](int64_t index) {
    thread_local Image image, mask;
    all->read(index, image, mask);
  });
  if (check.faults.empty()) return all;
  return std::make_unique<ReadableMasks>(std::move(all), std::move(check));
}

void count(const Image& mask, std::vector<int64_t>& pixels, int64_t& unlabeled) {
  std::array<int64_t, 256> counts = {};
  for (const uint8_t pixel : mask.pixels) ++counts[pixel];
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] += counts[i];
  unlabeled += counts[kUnlabeled];
}

}  // namespace

std::array<uint8_t, 3> palette_color(int64_t index) {
  std::array<uint8_t, 3> color = {};
  for (int bit = 7; index != 0; --bit, index >>= 3) {
    for (size_t c = 0; c < 3; ++c) color[c] = static_cast<uint8_t>(color[c] | ((index >> c & 1) << bit));
  }
  return color;
}

std::vector<std::string> mask_kinds() { return {"shapes", "masks"}; }

std::unique_ptr<MaskedImages> open_masks(const MaskOptions& options) {
  if (options.split != "train" && options.split != "test")
    user_error("expected data.split 'train' or 'test', got '{}'", options.split);
  if (options.kind == "shapes") return std::make_unique<ShapeMasks>(options);
  if (options.kind == "masks") {
    auto images = is_outlined(options) ? open_outlined_masks(options) : open_mask_folder(options);
    return options.skip_bad ? without_bad(std::move(images), options.num_threads) : std::move(images);
  }
  user_error("expected data.kind shapes or masks for segmentation, got '{}'{}", options.kind,
             did_you_mean(options.kind, mask_kinds()));
}

MaskDecision decide_masks(const MaskOptions& train, const MaskOptions& held_out) {
  return is_outlined(train) ? decide_outlined_masks(train, held_out) : decide_mask_folder(train, held_out);
}

MaskCheck check_masks(const MaskedImages& images) {
  MaskCheck check{.classes = images.classes(), .num_images = images.size()};
  check.pixels.resize(check.classes.size());
  Image image, mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    try {
      images.read(i, image, mask);
      count(mask, check.pixels, check.unlabeled);
    } catch (const UserError& error) {
      check.faults.emplace_back(error.what());
    }
  }
  return check;
}

std::vector<float> median_frequency_weights(const MaskedImages& images) {
  const size_t num_classes = images.classes().size();
  std::vector<double> pixels(num_classes), of_images(num_classes);
  Image mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    images.read_mask(i, mask);
    std::vector<int64_t> here(num_classes);
    int64_t unlabeled = 0;
    count(mask, here, unlabeled);
    const auto labeled = static_cast<double>(mask.size().num_pixels() - unlabeled);
    for (size_t c = 0; c < num_classes; ++c) {
      pixels[c] += static_cast<double>(here[c]);
      if (here[c] > 0) of_images[c] += labeled;
    }
  }
  std::vector<double> frequencies;
  for (size_t c = 0; c < num_classes; ++c)
    if (pixels[c] > 0) frequencies.push_back(pixels[c] / of_images[c]);
  std::ranges::sort(frequencies);
  std::vector<float> weights(num_classes);
  if (frequencies.empty()) return weights;
  const double median = (frequencies[frequencies.size() / 2] + frequencies[(frequencies.size() - 1) / 2]) / 2;
  for (size_t c = 0; c < num_classes; ++c)
    if (pixels[c] > 0) weights[c] = static_cast<float>(median * of_images[c] / pixels[c]);
  return weights;
}

std::vector<std::vector<int32_t>> classes_of_masks(const MaskedImages& images) {
  std::vector<std::vector<int32_t>> made(static_cast<size_t>(images.size()));
  Image mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    images.read_mask(i, mask);
    std::vector<int64_t> pixels(images.classes().size());
    int64_t unlabeled = 0;
    count(mask, pixels, unlabeled);
    for (size_t c = 0; c < pixels.size(); ++c)
      if (pixels[c] > 0) made[static_cast<size_t>(i)].push_back(static_cast<int32_t>(c));
  }
  return made;
}

Image colorize(const Image& mask, const std::vector<MaskClass>& classes) {
  Image out{.height = mask.height, .width = mask.width, .channels = 3};
  out.pixels.reserve(mask.pixels.size() * 3);
  for (const uint8_t pixel : mask.pixels) {
    const std::array<uint8_t, 3> color =
        pixel < classes.size() ? classes[pixel].color : std::array<uint8_t, 3>{255, 255, 255};
    out.pixels.insert(out.pixels.end(), color.begin(), color.end());
  }
  return out;
}

Image overlay(const Image& image, const Image& mask, const std::vector<MaskClass>& classes) {
  HEARTH_CHECK(image.size() == mask.size() && image.channels == 3);
  Image out = image;
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    const uint8_t label = mask.pixels[i];
    if (label == 0 || label >= classes.size()) continue;
    for (size_t c = 0; c < 3; ++c) {
      uint8_t& value = out.pixels[3 * i + c];
      value = static_cast<uint8_t>((value + classes[label].color[c] + 1) / 2);
    }
  }
  return out;
}

}  // namespace hearth::data
