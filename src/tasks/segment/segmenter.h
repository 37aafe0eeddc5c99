#pragma once

#include "data/masks/mask_rows.h"
#include "engine/objective.h"
#include "models/model.h"

namespace hearth::tasks {

/// A loss of every pixel or class; an objective takes the sum of several.
enum class MaskLoss : uint8_t {
  cross_entropy,  ///< the mean over labeled pixels, weighted by class
  /// Sudre et al. 2017 (arXiv 1707.03237): 1 - the mean over classes of 2 |P T| / (|P| + |T|), over all
  /// pixels of a micro-batch, 1 added above and below.
  dice,
  focal,  ///< Lin et al. 2017 (arXiv 1708.02002): cross entropy times (1 - p)^2
};

/// A class for each pixel.
struct SegmenterOptions {
  models::ModelOptions model;
  std::vector<MaskLoss> losses = {MaskLoss::cross_entropy};
  bool has_class_weights = false;
  /// Evaluation hands out probabilities beside the classes.
  bool wants_probabilities = false;
};

/// A micro-batch is what data::MaskRows makes, {images f32 [rows, height, width, 3], masks i32 [rows, height,
/// width], weight f32 [rows]}, and with class weights {..., f32 [classes]}. A sample is an image; a
/// micro-batch's loss is a mean over its labeled pixels, so that it counts like one of its images for each.
std::shared_ptr<const engine::Objective> segmenter(SegmenterOptions options);

/// Positions after an evaluation: classes i32 [rows, height, width] (Engine::int_output), probabilities f32
/// [rows, height, width, classes].
enum SegmenterOutput : size_t { kPixelClasses = 0, kPixelProbabilities = 1 };

}  // namespace hearth::tasks
