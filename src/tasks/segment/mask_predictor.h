#pragma once

#include "data/masks/mask_rows.h"
#include "engine/engine.h"

namespace hearth::tasks {

/// How pictures come into a segmenter, and its classes out of it.
struct MaskInput {
  Extent size;          ///< of the pictures that it takes
  bool resizes = true;  ///< a whole picture is resized to `size`; else windows of `size` slide over it
  data::PixelOptions pixels;
  int64_t num_classes = 0;
  std::vector<float> class_weights;  ///< of its loss, if it has them
  Exif exif = Exif::apply;
};

/// A whole picture's class of each pixel, in the picture's own size. With sliding windows, which overlap by
/// half, a pixel's probabilities are the sum of those of its windows.
class MaskPredictor {
 public:
  /// The engine evaluates micro-batches of `batch` rows, and of a segmenter that hands out probabilities
  /// where windows slide.
  MaskPredictor(engine::Engine& engine, MaskInput input, int64_t batch);

  /// `picture` is RGB.
  data::Image predict(const data::Image& picture) { return predict(picture, nullptr, nullptr); }
  /// Adds the losses of the windows, and their number, for a picture whose truth is known.
  struct Loss {
    double sum = 0;
    int64_t count = 0;
  };
  data::Image predict(const data::Image& picture, const data::Image* truth, Loss* loss);

 private:
  struct Window {
    int64_t top, left;
  };
  std::vector<Window> windows(Extent picture) const;
  /// Adds a window's probabilities [height, width, classes] where it lies in the whole picture.
  void add_window(const float* from, Window window, Extent whole, std::vector<float>& sums) const;
  data::Image largest(const std::vector<float>& sums, Extent whole) const;
  void fill_row(const data::Image& scaled, const data::Image* truth, Window window, int64_t row);

  engine::Engine& engine_;
  MaskInput input_;
  int64_t batch_;
  std::vector<uint8_t> part_, labels_;
  std::vector<float> images_, weights_, class_weights_;
  std::vector<int32_t> masks_;
};

}  // namespace hearth::tasks
