#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace hearth::engine {

/// Looks at what an engine computes, between steps: with programs of its own, which are compiled when asked
/// for, or node by node.
class Inspector {
 public:
  explicit Inspector(Engine& engine);

  /// Runs micro-batch `index` of an update again, without updating, and names the input or the first node
  /// that is not finite; empty where all is.
  std::string find_not_finite(const MicroBatch& batch, int64_t step, int64_t index);
  /// Runs whole training steps of one micro-batch, with their updates, and returns the fastest seconds of
  /// each node of Plan::train_program().
  std::vector<double> profile(const MicroBatch& batch, int num_steps);
  /// Whether the updates of full micro-batches are queued by one call (exec/executor.h).
  bool is_recorded();
  /// Runs forward and backward only, and hands out each weight's gradient of the sum of the losses over
  /// `num_samples`, in file order.
  void gradients(const MicroBatch& batch, int64_t num_samples,
                 const std::function<void(const nn::Tensor&, std::span<const float>)>& take);

 private:
  Engine& engine_;
  Runtime& runtime_;
  Plan& plan_;
};

}  // namespace hearth::engine
