#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "data/boxes/box.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "recipe/recipe.h"
#include "tasks/detect/detection.h"

namespace hearth::tasks {

/// Options of all detectors; a detector ignores those that do not apply to it.
struct DetectorOptions {
  std::string model = "yolox_s";  ///< name of one of detectors()
  int64_t num_classes = 80;
  Extent image_size = 640;  ///< image size of batches with row_length 0
  int64_t max_boxes = 120;  ///< max boxes of a training image; if it has more, the smallest ones are left out
  /// For RetinaNet and FCOS. width: channels of the ResNet's stem, 0: 64; frozen_norm: true if batch norms
  /// are not trained.
  int64_t width = 0;
  bool frozen_norm = false;
  recipe::Distill distill = {};                              ///< loss with a teacher
  std::shared_ptr<const DetectorOptions> teacher = nullptr;  ///< a detector of the same family; null: none
};

/// Interface of a family of detectors: objective, training targets and decoding of predictions. A micro-batch
/// is {images f32 [rows, height, width, 3], then the arrays that write_targets fills}; a sample is an image.
class Detector {
 public:
  virtual ~Detector() = default;
  virtual std::shared_ptr<const engine::Objective> objective() const = 0;

  /// Returns the normalization of pixels: (pixel / 255 - mean) / std, RGB.
  virtual const data::PixelOptions& pixels() const = 0;
  /// Returns the number of pixels that the sides of images must be multiples of.
  virtual int64_t side_multiple() const { return 32; }
  /// Returns the formats of the target arrays, for images of this size.
  virtual data::ArrayFormats target_formats(Extent size) const = 0;
  /// Writes the target arrays of a row. `boxes`: in pixels of the input; `last_epochs`: true in the last
  /// epochs, without mosaic and mixup, in which a detector may add losses (YOLOX: L1).
  virtual void write_targets(std::span<const data::Box> boxes, Extent size, bool last_epochs,
                             std::span<std::byte* const> arrays) const = 0;
  /// Returns the detections of row `row` of the engine's last evaluation with a score of at least
  /// `min_score`, before non-maximum suppression, in pixels of the input.
  virtual std::vector<Detection> read(const engine::Engine& engine, int64_t row, Extent size,
                                      double min_score) const = 0;
};

/// A built-in detection model.
struct DetectorDef {
  std::string_view name;
  std::string_view doc;
  std::unique_ptr<Detector> (*open)(const DetectorOptions& options);
};
/// Returns all built-in detectors. A new detector needs a source file in src/tasks/detect/ and a row in
/// detector.cpp.
std::span<const DetectorDef> detectors();
/// Returns the detector with that name; null if there is none.
const DetectorDef* find_detector(std::string_view name);

}  // namespace hearth::tasks
