#pragma once

#include "run/state.h"
#include "tasks/task.h"

namespace hearth::run {

/// Determines which rows a step trains on, how many steps there are, and what follows a step.
class StepPlan {
 public:
  /// Both outlive the plan.
  StepPlan(const recipe::Recipe& recipe, const tasks::Task& task) : recipe_(recipe), task_(task) {}

  int64_t steps_per_epoch() const;
  /// Counts the steps of the full run, done and remaining, for a run at `state`.
  void count_steps(const RunState& state);
  int64_t total_steps() const { return total_steps_; }
  double learning_rate(int64_t step) const;

  /// Number of rows, and of micro-batches, of the step that begins at `position`.
  int64_t num_rows(const data::LoaderPosition& position) const;
  int64_t num_micro(const data::LoaderPosition& position) const;
  /// Moves the state past the step's rows.
  void advance(RunState& state) const;

  // For the number of completed steps:
  bool is_last(int64_t step) const { return step == total_steps_; }
  /// True if all workers have the same weights.
  bool is_together(int64_t step) const;
  bool is_evaluated(int64_t step) const;
  bool is_checkpoint_due(int64_t step) const { return step % recipe_.train.checkpoint_every == 0; }
  bool is_progress_due(int64_t step) const { return step % recipe_.train.log_every == 0; }

 private:
  int64_t rows_per_step() const { return recipe_.train.batch * recipe_.train.accumulate; }

  const recipe::Recipe& recipe_;
  const tasks::Task& task_;
  int64_t total_steps_ = 0;
};

}  // namespace hearth::run
