#pragma once

#include <string>

#include "cost/roofline.h"
#include "engine/plan.h"

namespace hearth::planner {

/// Number of samples of an update, all workers together.
struct UpdateSize {
  int64_t num_samples = 0;  ///< images or tokens
  bool is_text = false;
};
/// Returns the size of an update of a plan.
UpdateSize update_size(const engine::Plan& plan);

/// Predicted time and FLOPs of a training step on a GPU, which need not exist.
struct StepModel {
  const cost::Device* gpu = nullptr;
  DType precision = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::same;
  cost::Roofline roofline;  ///< predicted times of all micro-batches and the update
  int64_t num_samples = 0;  ///< images or tokens
  bool is_text = false;
  int64_t memory_bytes = 0;     ///< device memory needed for weights, states and the arena
  double recomputed_flops = 0;  ///< FLOPs of recomputation, which MFU does not count

  double samples_per_second() const { return static_cast<double>(num_samples) / roofline.seconds; }
  /// Returns the model FLOPs utilization: FLOPs per second of the model without recomputation, as a fraction
  /// of the vendor's peak in the matmul precision (cost::peak_flops_per_second).
  double mfu() const;
};

/// Plans a training step and predicts its time; executes nothing.
StepModel model_step(engine::EngineOptions options, const cost::Device& gpu);

/// Formats the prediction as a table.
std::string to_table(const StepModel& model);

}  // namespace hearth::planner
