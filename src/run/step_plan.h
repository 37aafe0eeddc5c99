#pragma once

#include <optional>

#include "run/state.h"
#include "tasks/task.h"

namespace hearth::run {

/// Schedule of a run: number of steps, rows of each step, and actions that are due after a step (evaluation,
/// checkpoint).
class StepPlan {
 public:
  /// `recipe` and `task` must outlive the plan.
  StepPlan(const recipe::Recipe& recipe, const tasks::Task& task) : recipe_(recipe), task_(task) {}

  int64_t steps_per_epoch() const;
  /// Computes total_steps(): train.steps, or the steps completed at `state` plus those that the remaining
  /// epochs need.
  void count_steps(const RunState& state);
  int64_t total_steps() const { return total_steps_; }
  double learning_rate(int64_t step) const;

  /// Fractions of weights that are pruned before an update; see Engine::prune().
  struct PruneTarget {
    double sparsity = 0;
    double dropped = 0;
  };
  /// Returns the fractions if pruning is due after `step` completed updates. The sparsity rises with the
  /// cubic schedule of Zhu and Gupta 2017 (arXiv 1710.01878); RigL's fraction of replaced weights falls with
  /// a cosine.
  std::optional<PruneTarget> prune_target(int64_t step) const;

  /// Return the number of rows and of micro-batches of the step that begins at `position`.
  int64_t num_rows(const data::LoaderPosition& position) const;
  int64_t num_micro(const data::LoaderPosition& position) const;
  /// Increments the step of `state` and advances its data position past the rows of that step.
  void advance(RunState& state) const;

  // In the functions below, `step` is the number of completed steps.
  bool is_last(int64_t step) const { return step == total_steps_; }
  /// True if all workers have equal weights after this step. False only between two outer steps of DiLoCo
  /// (exchange.local_steps > 1), when the workers train separate copies.
  bool has_equal_weights(int64_t step) const;
  bool is_evaluated(int64_t step) const;
  bool is_checkpoint_due(int64_t step) const { return step % recipe_.train.checkpoint_every == 0; }
  bool is_progress_due(int64_t step) const { return step % recipe_.train.log_every == 0; }

 private:
  void check_prune_steps() const;
  int64_t rows_per_step() const { return recipe_.train.batch * recipe_.train.accumulate; }

  const recipe::Recipe& recipe_;
  const tasks::Task& task_;
  int64_t total_steps_ = 0;
};

}  // namespace hearth::run
