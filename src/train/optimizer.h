#pragma once

#include <string>

#include "passes/train_graph.h"

namespace hearth::train {

/// How weights move. Formulas and defaults are torch.optim.SGD (dampening 0) and torch.optim.AdamW.
struct OptimizerOptions {
  enum class Kind : uint8_t { sgd, adamw };
  Kind kind = Kind::sgd;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  /// Gradients are scaled down to this global norm; 0 = off.
  double clip_norm = 0;
  /// Exponential moving average of the weights, used for evaluation; 0 = off.
  double ema_decay = 0;
  /// fp16: the loss is scaled by a state that halves on overflow and grows back.
  bool dynamic_loss_scale = false;
};

/// Names of persistent values: "momentum/NAME", "adam_m/NAME", "adam_v/NAME", "ema/NAME", "grad/NAME";
/// "steps"; "loss_scale" is {scale, good steps, skipped steps}.
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLearningRate = "learning_rate";
inline constexpr const char* kInverseSamples = "inverse_samples";

/// The scalar that every per-sample loss is multiplied by: "inverse_samples", times the loss scale for fp16.
ir::ValueId add_loss_weight(ir::Graph& graph, const OptimizerOptions& options);

/// Appends the update of every weight from `train.gradients`; the first graph output added is the sum of
/// squares of the (scaled) gradients. A sum that is not finite leaves every weight and state untouched.
void add_update(passes::TrainGraph& train, const OptimizerOptions& options);

/// Appends grad/NAME += gradient for every weight.
void add_accumulation(passes::TrainGraph& train);

/// A graph that updates the weights from grad/NAME and clears it. `parameters` supplies names and types.
passes::TrainGraph make_update_graph(const ir::Graph& parameters, const OptimizerOptions& options);

}  // namespace hearth::train
