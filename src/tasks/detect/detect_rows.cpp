#include "tasks/detect/detect_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"
#include "data/images/augment.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kChannels = 3;
/// Number of consecutive training images that have the same size in multi-scale training; does not depend on
/// the batch size.
constexpr int64_t kImagesPerSize = 160;

Extent largest(const DetectRowOptions& options) {
  return options.sides.empty() ? options.size : Extent(std::ranges::max(options.sides));
}

}  // namespace

DetectRows::DetectRows(const data::BoxedImages& set, const Detector& detector, DetectRowOptions options)
    : set_(set),
      detector_(detector),
      options_(std::move(options)),
      reader_(set, largest(options_).height, largest(options_).width, options_.cache_budget) {
  data::check_box_augment(options_.augment);
  const int64_t multiple = detector.side_multiple();
  std::vector<int64_t> sides = options_.sides;
  sides.insert(sides.end(), {options_.size.height, options_.size.width});
  for (const int64_t side : sides) {
    if (side < multiple || side % multiple != 0) {
      user_error("image sides must be multiples of {}, got {}; try data.image_size={}", multiple, side,
                 std::max(multiple, (side + multiple / 2) / multiple * multiple));
    }
  }
}

int64_t DetectRows::row_length(const data::LoaderPosition& begin) const {
  if (options_.sides.empty()) return 0;
  PhiloxSequence random(begin.seed, static_cast<uint64_t>(begin.epoch),
                        0x517E0000U + static_cast<uint32_t>(begin.sample / kImagesPerSize));
  return options_.sides[random.below(static_cast<uint32_t>(options_.sides.size()))];
}

Extent DetectRows::size_of(int64_t length) const { return length > 0 ? Extent(length) : options_.size; }

data::ArrayFormats DetectRows::formats(int64_t length) const {
  const Extent size = length > 0 ? Extent(length) : largest(options_);
  const data::ArrayFormats targets = detector_.target_formats(size);
  data::ArrayFormats made = {
      {{"images", size.num_pixels() * kChannels * static_cast<int64_t>(sizeof(float))}}};
  std::copy(targets.begin(), targets.end() - 1, made.begin() + 1);
  return made;
}

data::BoxSample DetectRows::augmented_sample(const data::Row& row) const {
  const Extent size = size_of(row.length);
  if (!options_.is_training) return data::make_eval_sample(set_, reader_, size.height, size.width, row.index);
  data::BoxAugment augment = options_.augment;
  if (is_plain(row)) augment.mosaic = augment.mixup = 0;
  return data::make_train_sample(set_, reader_, augment, size.height, size.width, row.key, row.index);
}

data::BoxSample DetectRows::training_sample(const data::Row& row) const {
  data::BoxSample made = augmented_sample(row);
  std::erase_if(made.boxes, [](const data::Box& box) { return box.crowd; });
  if (std::ssize(made.boxes) > options_.max_boxes) {
    std::ranges::stable_sort(made.boxes, std::ranges::greater(), &data::Box::area);
    made.boxes.resize(static_cast<size_t>(options_.max_boxes));
  }
  return made;
}

void DetectRows::make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const {
  const Extent size = size_of(row.length);
  const data::BoxSample made = training_sample(row);
  data::Augmenter{detector_.pixels(), size, kChannels}.apply(row.key, row.index, made.image.pixels.data(),
                                                             reinterpret_cast<float*>(arrays[0]));
  detector_.write_targets(made.boxes, size, is_plain(row), std::span(arrays).subspan(1));
}

}  // namespace hearth::tasks
