#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::engine {

/// Inspects the values that an engine computes. Call between steps. Compiles separate programs on demand, or
/// runs a program node by node.
class Inspector {
 public:
  explicit Inspector(Engine& engine);

  /// Runs micro-batch `index` of an update again without updating, and returns the name of the first input or
  /// node with a value that is not finite; empty if all values are finite.
  std::string find_not_finite(const MicroBatch& batch, int64_t step, int64_t index);
  /// Runs num_steps updates with one micro-batch each, and returns the shortest time of each node of
  /// Plan::train_program(), in seconds. Changes the weights.
  std::vector<double> profile(const MicroBatch& batch, int num_steps);
  /// Records in `event` the current end of the GPU's compute queue. The engine must be on a GPU.
  void record(gpu::Event& event);
  /// True if updates are replayed from a recorded GPU graph (exec/executor.h).
  bool is_recorded();
  /// Runs the forward and backward pass only, and calls `take` for each weight with the gradient of the sum
  /// of the losses, divided by `num_samples`. The gradient's elements have the order of the weight file.
  void gradients(const MicroBatch& batch, int64_t num_samples,
                 const std::function<void(const nn::Tensor&, std::span<const float>)>& take);

 private:
  Engine& engine_;
  Runtime& runtime_;
  Plan& plan_;
};

}  // namespace hearth::engine
