#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/pruning.h"
#include "passes/train_graph.h"

namespace hearth::engine {

/// Options of the optimizer: torch.optim.SGD (dampening 0), AdamW, Adafactor and Muon with torch's formulas,
/// Lion (arXiv 2302.06675), and AdamW with 8-bit moments (arXiv 2110.02861).
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
  /// Updates each weight as soon as its gradient is final, and frees the gradient. Not with clip_norm,
  /// gradient accumulation or a loss scale, because the norm of all gradients is not known yet: a gradient
  /// that is not finite skips the update of its weight only.
  bool in_backward = false;
  /// Modules and factors of their learning rate. The first entry whose module contains a weight applies to
  /// the weight.
  std::vector<std::pair<std::string, double>> rates = {};
  /// Decay of the exponential moving average (EMA) of the weights, which evaluations use; 0 = off.
  double ema_decay = 0;
  /// For fp16: multiplies the loss by a loss scale, a state that halves on overflow and grows again.
  bool dynamic_loss_scale = false;
};

std::span<const std::string> optimizer_names();

/// Names of values of an update that are not states of weights (ir/state_name.h). The loss scale is {scale,
/// number of good steps, number of skipped steps}.
inline constexpr const char* kStepCount = "steps";
inline constexpr const char* kLossScale = "loss_scale";
inline constexpr const char* kLearningRate = "learning_rate";
inline constexpr const char* kInverseSamples = "inverse_samples";

/// Adds the factor by which every per-sample loss is multiplied: the scalar "inverse_samples", times the loss
/// scale for fp16.
ir::ValueId add_loss_weight(ir::Graph& graph, const OptimizerOptions& options);

/// A running mean or variance of a batch norm that the update changes, by the mean of the batch statistic
/// over all micro-batches.
struct RunningStatistic {
  std::string name;
  ir::Type type;
  double momentum = 0;
};
inline constexpr const char* kInverseMicro = "inverse_micro";
inline constexpr const char* kPresent = "present";

/// Changes each batch norm of a training graph to write the mean and variance of the batch to states of kind
/// `batch_statistic`, instead of updating its running statistics. Returns these running statistics.
std::vector<RunningStatistic> take_statistics(ir::Graph& graph);

/// Indices of a worker's gradients among the gradients of the full model.
struct LocalGradients {
  std::vector<int64_t> indices;
  int64_t num_gradients = 0;
};

/// Settings for the sum of gradients over the micro-batches of an update.
struct SumOptions {
  int64_t num_micro = 1;
  /// True if this worker computes other micro-batches of the update before the last one.
  bool has_earlier = false;
  /// Number of partial sums that this worker's earlier shards have stored (ShardLevel); the last shard adds
  /// all of them.
  int num_levels = 0;
  int rank = 0;         ///< rank of this worker
  int num_workers = 1;  ///< number of workers whose gradients are summed
  /// For each weight, by name, the worker that updates it and stores its state (ZeRO-1, arXiv 1910.02054);
  /// empty: every worker updates all weights.
  std::map<std::string, int> owners = {};
  /// True if only the owner of a weight stores the weight.
  bool shards_weights = false;
  /// True for a pipeline stage: the gradients are sums over the update already (add_accumulation()); `local`
  /// lists the stage's gradients.
  bool are_sums = false;
  LocalGradients local = {};
};

/// Assigns each weight of a model to a worker: the largest first, to the worker with the fewest bytes so far.
std::map<std::string, int> owners_of(const ir::Graph& graph, int num_workers);

/// Appends the update of every weight. `train.gradients`: gradients of the last micro-batch of an update; the
/// stored sums of earlier micro-batches are added to them and then cleared. The first added output is the sum
/// of squares of the (scaled) gradients; if it is not finite, no weight and no state changes. With several
/// workers, lists the values to all-reduce in `train.shared`, and the weights that one worker sends to all in
/// `train.spread`. `tables`: embedding tables and heads, which Muon updates with AdamW. Each running
/// statistic is updated once, by the mean over the micro-batches (their sum times the scalar
/// "inverse_micro"), with the decay of num_micro updates. The last micro-batch counts only if the scalar
/// "present" is 1, not 0. Gradients of pruned weights are masked before anything else reads them, and
/// weights and averages after they were changed.
void add_update(passes::TrainGraph& train, const OptimizerOptions& options,
                std::span<const std::string> tables, std::span<const RunningStatistic> statistics,
                const SumOptions& sums, const MaskedUpdate& masked = {});

/// Appends gradient_sum += gradient for every weight, and gradient_sum += batch_statistic for every running
/// statistic. `may_be_idle`: true if the micro-batch counts only if the scalar "present" is 1, not 0. Returns
/// the sums of gradients.
std::vector<ir::ValueId> add_accumulation(passes::TrainGraph& train,
                                          std::span<const RunningStatistic> statistics,
                                          bool may_be_idle = false);

/// Returns a graph that adds the gradient sums of level `from` to those of level `to` and then clears level
/// `from`. Level 0 has the sums of the shard that is being computed. Levels 1, 2, 3 ... store sums over 1, 2,
/// 4 ... shards, until the next sum over equally many shards is complete. `sums`: a graph of
/// add_accumulation(), for names and types.
passes::TrainGraph make_move_graph(const ir::Graph& sums, int from, int to);

}  // namespace hearth::engine
