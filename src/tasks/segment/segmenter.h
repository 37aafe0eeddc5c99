#pragma once

#include "data/masks/mask_rows.h"
#include "engine/objective.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Terms of the segmentation loss, which is the sum of one or more of them.
enum class MaskLoss : uint8_t {
  cross_entropy,  ///< mean cross entropy over labeled pixels, weighted by class
  /// Soft dice loss (Sudre et al. 2017, arXiv 1707.03237): 1 minus the mean over classes of (2 sum(p t) + 1)
  /// / (sum(p) + sum(t) + 1), with predicted probabilities p and truth t (0 or 1) of all labeled pixels of a
  /// micro-batch.
  dice,
  focal,  ///< focal loss (Lin et al. 2017, arXiv 1708.02002): cross entropy times (1 - p)^2
};

/// Options of semantic segmentation, which predicts a class for each pixel.
struct SegmenterOptions {
  models::ModelOptions model;
  std::vector<MaskLoss> losses = {MaskLoss::cross_entropy};
  bool has_class_weights = false;
  recipe::Distill distill = {};                      ///< loss with a teacher
  std::optional<models::ModelOptions> teacher = {};  ///< model of the teacher
  /// True if evaluations also output probabilities.
  bool outputs_probabilities = false;
};

/// Returns the objective. A micro-batch is the arrays of data::MaskRows, {images f32 [rows, height, width,
/// 3], masks i32 [rows, height, width], weight f32 [rows]}, and with class weights {..., f32 [classes]}. A
/// sample is an image. The mean of a micro-batch's losses is the mean over its labeled pixels.
std::shared_ptr<const engine::Objective> segmenter(SegmenterOptions options);

/// Indices of the outputs of an evaluation. kPixelClasses: predicted classes, i32 [rows, height, width]
/// (Engine::int_output); kPixelProbabilities: f32 [rows, height, width, classes] (Engine::output).
enum SegmenterOutput : size_t { kPixelClasses = 0, kPixelProbabilities = 1 };

}  // namespace hearth::tasks
