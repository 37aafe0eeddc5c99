#pragma once

#include <string>

#include "cost/roofline.h"
#include "engine/plan.h"

namespace hearth::planner {

/// What an update is made from, by all workers.
struct UpdateSize {
  int64_t num_samples = 0;  ///< pictures, or tokens
  bool is_text = false;
};
UpdateSize update_size(const engine::Plan& plan);

/// A training step on a GPU that need not be there: a model, not a measurement.
struct StepModel {
  const cost::Device* gpu = nullptr;
  DType precision = DType::f32;
  cost::Roofline roofline;  ///< of all micro-batches and the update
  int64_t num_samples = 0;  ///< pictures, or tokens
  bool is_text = false;
  double recomputed_flops = 0;  ///< which MFU does not count

  double samples_per_second() const { return static_cast<double>(num_samples) / roofline.seconds; }
  /// The share of the vendor's peak that the model's own arithmetic comes to.
  double mfu() const;
};

/// Compiles the training step; nothing is run.
StepModel model_step(engine::EngineOptions options, const cost::Device& gpu);

std::string to_table(const StepModel& model);

}  // namespace hearth::planner
