#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "passes/train_graph.h"

namespace hearth::engine {

/// How weights move: torch.optim.SGD (dampening 0), AdamW, Adafactor and Muon with torch's formulas, Lion
/// (arXiv 2302.06675), and AdamW with 8-bit moments (arXiv 2110.02861).
struct OptimizerOptions {
  std::string_view name = "sgd";  ///< one of optimizer_names()
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  /// Gradients are scaled down to this global norm; 0 = off.
  double clip_norm = 0;
  /// A weight moves as soon as its gradient is final, which then dies. Not with clip_norm, sums of gradients
  /// or a loss scale: nothing waits for the whole gradient, so one that is not finite stops only its own
  /// weights.
  bool in_backward = false;
  /// What the learning rate is multiplied by for weights of a module; the first that has a weight holds.
  std::vector<std::pair<std::string, double>> rates = {};
  /// Exponential moving average of the weights, used for evaluation; 0 = off.
  double ema_decay = 0;
  /// fp16: the loss is scaled by a state that halves on overflow and grows back.
  bool dynamic_loss_scale = false;
};

std::span<const std::string> optimizer_names();

/// Names of what an update reads and keeps beside the states of weights (ir/state_name.h); the loss scale is
/// {scale, good steps, skipped steps}.
inline constexpr const char* kStepCount = "steps";
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLearningRate = "learning_rate";
inline constexpr const char* kInverseSamples = "inverse_samples";

/// The scalar that every per-sample loss is multiplied by: "inverse_samples", times the loss scale for fp16.
ir::ValueId add_loss_weight(ir::Graph& graph, const OptimizerOptions& options);

/// A running statistic of a batch norm that an update moves by the mean over its micro-batches.
struct RunningStatistic {
  std::string name;
  ir::Type type;
  double momentum = 0;
};
inline constexpr const char* kInverseMicro = "inverse_micro";
inline constexpr const char* kPresent = "present";

/// Lets each batch norm of a training graph leave what it measured in the `batch_statistic` of what it would
/// have moved.
std::vector<RunningStatistic> take_statistics(ir::Graph& graph);

/// The gradients that a worker has, by their places among those of all workers.
struct OwnGradients {
  std::vector<int64_t> places;
  int64_t num_gradients = 0;
};

/// How an update's micro-batches add up.
struct SumOptions {
  int64_t num_micro = 1;
  bool has_earlier = false;  ///< others of this worker come before the last one
  /// Of sums put away before this one, all of which are taken up again (distributed/sum.h).
  int num_levels = 0;
  int rank = 0;         ///< of this worker
  int num_workers = 1;  ///< that have the rest
  /// By name of a weight, the worker that alone updates it and keeps its state (ZeRO-1, arXiv 1910.02054);
  /// empty: every worker updates all.
  std::map<std::string, int> owners = {};
  /// Whoever updates a weight keeps it to himself.
  bool shards_weights = false;
  /// Gradients are `own`, of a stage of a pipeline, and the sums of an update already, as add_accumulation
  /// leaves them.
  bool are_sums = false;
  OwnGradients own = {};
};

/// For each weight of a model the worker that updates it: the largest first to whoever has least.
std::map<std::string, int> owners_of(const ir::Graph& graph, int num_workers);

/// Appends the update of every weight from `train.gradients`, those of an update's last micro-batch; the
/// first graph output added is the sum of squares of the (scaled) gradients. A sum that is not finite leaves
/// every weight and state untouched. Sums of earlier micro-batches are added in and cleared; with
/// other workers, `train.shared` names what they add up, `train.spread` the weights that one of them updates.
/// `tables`: weights that ids look up or that make logits, which Muon leaves to AdamW. Statistics move by
/// their mean, the sum times the scalar "inverse_micro", as far as num_micro micro-batches one after the
/// other would move them; the last one counts "present" times, 1 or 0.
void add_update(passes::TrainGraph& train, const OptimizerOptions& options,
                std::span<const std::string> tables, std::span<const RunningStatistic> statistics,
                const SumOptions& sums);

/// Appends, for every weight, gradient_sum += gradient, and for every statistic += its batch_statistic;
/// `may_be_idle`: of a micro-batch that counts "present" times, 1 or 0. Returns the sums of gradients.
std::vector<ir::ValueId> add_accumulation(passes::TrainGraph& train,
                                          std::span<const RunningStatistic> statistics,
                                          bool may_be_idle = false);

/// The sums of level `to` += those of level `from`, which are cleared: level 0 has those of a shard's
/// micro-batches, levels 1, 2 ... those of 1, 2 ... shards, put away until as many more are there. `sums`
/// supplies names and types: a graph of add_accumulation.
passes::TrainGraph make_move_graph(const ir::Graph& sums, int from, int to);

}  // namespace hearth::engine
