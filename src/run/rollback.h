#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "run/checkpoints.h"
#include "run/step_plan.h"

namespace hearth::run {

/// Detects bad steps (non-finite loss or gradients, or a loss spike) and undoes them. A bad step is detected
/// only after its update, and copying the state before every step would be slow. Therefore the run returns to
/// the newest checkpoint, repeats the steps since then with bitwise the same results, and skips the samples
/// of the bad step. All workers compute the same loss, so they make the same decision without communication.
class Rollback {
 public:
  /// `plan` and `checkpoints` must outlive this object.
  Rollback(Worker worker, const StepPlan& plan, Checkpoints& checkpoints)
      : worker_(worker), plan_(plan), checkpoints_(checkpoints) {}

  /// True if the samples of this step must be skipped.
  bool is_bad(int64_t step) const;
  /// Describes why the step that ran from `state` is bad; empty if it is good.
  std::string describe_fault(const engine::StepResult& result, const RunState& state) const;
  /// Records a good step: adds its loss to the loss statistics of `state`, which detect spikes, and stores
  /// its number. Call before the step of `state` is incremented.
  void record_good_step(const engine::StepResult& result, RunState& state);
  /// True if another bad step may be skipped: the limits of bad_steps.max and of consecutive bad steps are
  /// not reached.
  bool may_skip(const RunState& state) const;
  /// Marks the step that ran from `state` as bad, and restores the newest checkpoint to `state` and the
  /// engine. If there is no checkpoint, calls `start_over` instead.
  void roll_back(const engine::StepResult& result, RunState& state, FunctionRef<void()> start_over);
  /// Ends the run: throws a UserError that describes `fault` and names the first non-finite tensor. Call on
  /// the leader.
  [[noreturn]] void stop(const engine::StepResult& result, const RunState& state, const std::string& fault);

 private:
  /// Deletes the checkpoints after the last good step, if the step of `result` was not finite.
  void discard_bad_checkpoints(const engine::StepResult& result);
  /// Runs the step from `state` again, op by op, and describes the first non-finite tensor.
  std::string find_not_finite(const RunState& state) const;

  Worker worker_;
  const StepPlan& plan_;
  Checkpoints& checkpoints_;
  std::vector<int64_t> bad_steps_;  ///< bad steps detected in this session
  int64_t last_good_step_ = -1;     ///< last step at which the weights had a finite loss
};

}  // namespace hearth::run
