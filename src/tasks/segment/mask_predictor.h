#pragma once

#include "data/masks/mask_rows.h"
#include "engine/engine.h"

namespace hearth::tasks {

/// Settings for the input of a segmentation model, and its number of classes.
struct MaskInput {
  Extent size;  ///< input size of the model
  /// True: images are resized to `size`; false: sliding windows of `size` are predicted.
  bool resizes = true;
  data::PixelOptions pixels;
  int64_t num_classes = 0;
  std::vector<float> class_weights;  ///< class weights of the loss; empty: none
  Exif exif = Exif::apply;
};

/// Predicts the class of each pixel of an image, at the image's original size. Sliding windows overlap by
/// half; each pixel gets the class with the highest sum of probabilities over its windows.
class MaskPredictor {
 public:
  /// The engine must evaluate micro-batches of `batch` rows and, for sliding windows, output probabilities.
  MaskPredictor(engine::Engine& engine, MaskInput input, int64_t batch);

  /// Returns a mask with the class of each pixel. `image`: RGB.
  data::Image predict(const data::Image& image) { return predict(image, nullptr, nullptr); }
  /// Sum of the losses of all predicted windows, and number of windows.
  struct Loss {
    double sum = 0;
    int64_t count = 0;
  };
  /// Predicts like the function above, and adds the losses to `loss`, if it is not null. `truth`: the true
  /// mask; null: unlabeled.
  data::Image predict(const data::Image& image, const data::Image* truth, Loss* loss);

 private:
  struct Window {
    int64_t top, left;
  };
  /// Returns the windows that cover an image.
  std::vector<Window> windows(Extent image) const;
  /// Adds a window's probabilities [height, width, classes] to `sums`, those of the full image, whose size is
  /// `full`.
  void add_window(const float* from, Window window, Extent full, std::vector<float>& sums) const;
  /// Returns a mask with the class of the highest sum for each pixel.
  data::Image argmax(const std::vector<float>& sums, Extent full) const;
  /// Writes row `row` of the input arrays from a window of the image and of its mask.
  void fill_row(const data::Image& scaled, const data::Image* truth, Window window, int64_t row);

  engine::Engine& engine_;
  MaskInput input_;
  int64_t batch_;
  std::vector<uint8_t> part_, labels_;
  std::vector<float> images_, weights_, class_weights_;
  std::vector<int32_t> masks_;
};

}  // namespace hearth::tasks
