#pragma once

#include <string>

#include "cost/roofline.h"
#include "engine/plan.h"

namespace hearth::planner {

/// Size of an update over all workers.
struct UpdateSize {
  int64_t num_samples = 0;  ///< images or tokens
  bool is_text = false;
};
/// Returns the size of an update of a plan training step.
UpdateSize update_size(const engine::Plan& plan);

/// Predicted training step on a GPU, which need not exist. A model, not a measurement.
struct StepModel {
  const cost::Device* gpu = nullptr;
  DType precision = DType::f32;
  cost::Roofline roofline;  ///< all micro-batches and the update
  int64_t num_samples = 0;  ///< images or tokens
  bool is_text = false;
  double recomputed_flops = 0;  ///< work of recomputation, which MFU does not count

  double samples_per_second() const { return static_cast<double>(num_samples) / roofline.seconds; }
  /// Returns the model FLOPs utilization: the model's own arithmetic relative to the vendor's peak.
  double mfu() const;
};

/// Compiles the training step and models it; nothing is executed.
StepModel model_step(engine::EngineOptions options, const cost::Device& gpu);

/// Formats the model as a table.
std::string to_table(const StepModel& model);

}  // namespace hearth::planner
