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
#include "tasks/detect/detection.h"

namespace hearth::tasks {

struct DetectorOptions {
  std::string model = "yolox_s";  ///< one of detectors()
  int64_t num_classes = 80;
  Extent image_size = 640;  ///< of pictures where a batch has no row_length
  int64_t max_boxes = 120;  ///< of a training picture; more are left out, the smallest first
  /// Of RetinaNet and FCOS (models::PyramidOptions): channels of the ResNet's stem, 0: 64; batch norms stay.
  int64_t width = 0;
  bool frozen_norm = false;
};

/// A family of detectors: what a model learns from and what it makes of a picture. A micro-batch is {images
/// f32 [rows, height, width, 3], then the arrays that write_targets fills}; a sample is a picture.
class Detector {
 public:
  virtual ~Detector() = default;
  virtual std::shared_ptr<const engine::Objective> objective() const = 0;

  /// How bytes become the input: (pixel / 255 - mean) / std, RGB.
  virtual const data::PixelOptions& pixels() const = 0;
  /// What the sides of pictures must be multiples of.
  virtual int64_t side_multiple() const { return 32; }
  /// Returns the formats of the arrays after the images, for images of this size.
  virtual data::ArrayFormats target_formats(Extent size) const = 0;
  /// Writes a row's targets from boxes in pixels of the input. `last_epochs`: pictures are no longer mixed,
  /// so that losses may be sharper.
  virtual void write_targets(std::span<const data::Box> boxes, Extent size, bool last_epochs,
                             std::span<std::byte* const> arrays) const = 0;
  /// What the engine's last evaluation says of row `row`: boxes in pixels of the input, of at least that
  /// score, overlapping ones too.
  virtual std::vector<Detection> read(const engine::Engine& engine, int64_t row, Extent size,
                                      double least_score) const = 0;
};

/// A model of a family.
struct DetectorDef {
  std::string_view name;
  std::string_view doc;
  std::unique_ptr<Detector> (*open)(const DetectorOptions& options);
};
/// Every built-in detector. To add one: a source in src/tasks/detect/ and its row in detector.cpp.
std::span<const DetectorDef> detectors();
/// The detector with that name, or null.
const DetectorDef* find_detector(std::string_view name);

}  // namespace hearth::tasks
