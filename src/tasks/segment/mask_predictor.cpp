#include "tasks/segment/mask_predictor.h"

#include <algorithm>

#include "data/images/augment.h"
#include "tasks/segment/segmenter.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kChannels = 3;
constexpr auto kSlack = static_cast<size_t>(engine::kInputSlack) / sizeof(float);

std::vector<int64_t> positions(int64_t full, int64_t part) {
  std::vector<int64_t> made = {0};
  const int64_t step = std::max<int64_t>(1, part / 2);
  for (int64_t at = step; at + part < full; at += step) made.push_back(at);
  if (full > part) made.push_back(full - part);
  return made;
}

}  // namespace

MaskPredictor::MaskPredictor(engine::Engine& engine, MaskInput input, int64_t batch)
    : engine_(engine),
      input_(std::move(input)),
      batch_(batch),
      part_(static_cast<size_t>(input_.size.num_pixels() * kChannels)),
      labels_(static_cast<size_t>(input_.size.num_pixels())),
      images_(static_cast<size_t>(batch * input_.size.num_pixels() * kChannels) + kSlack),
      weights_(static_cast<size_t>(batch) + kSlack),
      class_weights_(input_.class_weights),
      masks_(static_cast<size_t>(batch * input_.size.num_pixels()) + kSlack) {
  class_weights_.resize(class_weights_.size() + kSlack);
}

std::vector<MaskPredictor::Window> MaskPredictor::windows(Extent image) const {
  std::vector<Window> made;
  for (const int64_t top : positions(image.height, input_.size.height)) {
    for (const int64_t left : positions(image.width, input_.size.width)) made.push_back({top, left});
  }
  return made;
}

void MaskPredictor::fill_row(const data::Image& scaled, const data::Image* truth, Window window,
                             int64_t row) {
  const Extent size = input_.size;
  const data::MaskPlacement placement{.scaled = scaled.size(), .top = window.top, .left = window.left};
  data::place_image(scaled, placement, size, input_.pixels.mean, part_.data());
  data::Augmenter{input_.pixels, size, kChannels}.apply(0, 0, part_.data(),
                                                        images_.data() + row * size.num_pixels() * kChannels);
  std::ranges::fill(labels_, data::kUnlabeled);
  if (truth != nullptr) data::place_mask(*truth, placement, size, labels_.data());
  weights_[static_cast<size_t>(row)] =
      data::number_mask(labels_, input_.class_weights, masks_.data() + row * size.num_pixels());
}

data::Image MaskPredictor::predict(const data::Image& image, const data::Image* truth, Loss* loss) {
  const Extent size = input_.size;
  const data::Image scaled = input_.resizes ? data::resize(image, size) : image;
  const std::vector<Window> all = windows(scaled.size());
  std::vector<float> sums(
      input_.resizes ? 0 : static_cast<size_t>(scaled.size().num_pixels() * input_.num_classes));
  data::Image made{.height = size.height, .width = size.width, .channels = 1};
  for (size_t first = 0; first < all.size(); first += static_cast<size_t>(batch_)) {
    const auto count = std::min<int64_t>(batch_, std::ssize(all) - static_cast<int64_t>(first));
    // Fills a smaller last batch with copies of its last window, because the program has a fixed batch size.
    for (int64_t row = 0; row < batch_; ++row)
      fill_row(scaled, truth, all[first + static_cast<size_t>(std::min(row, count - 1))], row);
    engine::MicroBatch batch(
        {{"images", images_.data()}, {"masks", masks_.data()}, {"weight", weights_.data()}}, batch_);
    if (!input_.class_weights.empty()) batch.add({"class_weights", class_weights_.data()});
    const double sum = engine_.evaluate(batch);
    if (loss != nullptr) {
      loss->sum += sum;
      loss->count += batch_;
    }
    if (input_.resizes) {
      const std::span<const int32_t> classes = engine_.int_output(kPixelClasses);
      made.pixels.assign(classes.begin(), classes.begin() + size.num_pixels());
      continue;
    }
    for (int64_t row = 0; row < count; ++row) {
      const float* from =
          engine_.output(kPixelProbabilities).data() + row * size.num_pixels() * input_.num_classes;
      add_window(from, all[first + static_cast<size_t>(row)], scaled.size(), sums);
    }
  }
  if (!input_.resizes) made = argmax(sums, scaled.size());
  return made.size() == image.size() ? made : data::resize_mask(made, image.size());
}

void MaskPredictor::add_window(const float* from, Window window, Extent full,
                               std::vector<float>& sums) const {
  const int64_t height = std::min(input_.size.height, full.height - window.top);
  const int64_t count = std::min(input_.size.width, full.width - window.left) * input_.num_classes;
  for (int64_t y = 0; y < height; ++y) {
    const float* row = from + y * input_.size.width * input_.num_classes;
    float* to = sums.data() + ((window.top + y) * full.width + window.left) * input_.num_classes;
    for (int64_t i = 0; i < count; ++i) to[i] += row[i];
  }
}

data::Image MaskPredictor::argmax(const std::vector<float>& sums, Extent full) const {
  data::Image made{.height = full.height, .width = full.width, .channels = 1};
  made.pixels.reserve(static_cast<size_t>(full.num_pixels()));
  for (auto at = sums.begin(); at != sums.end(); at += input_.num_classes)
    made.pixels.push_back(static_cast<uint8_t>(std::max_element(at, at + input_.num_classes) - at));
  return made;
}

}  // namespace hearth::tasks
