#pragma once

#include <string>
#include <vector>

#include "base/function_ref.h"
#include "run/checkpoints.h"
#include "run/step_plan.h"

namespace hearth::run {

/// Detects bad steps (a loss or gradients that are not finite, a spike of the loss) and undoes them. A bad
/// step is known only after its update, and a copy of the state per step would be slow: so the run returns to
/// the newest checkpoint, repeats the steps since then to the same bits, and skips the samples of the bad
/// one. Every worker sees the same loss and decides alike.
class Rollback {
 public:
  /// References outlive this.
  Rollback(Worker worker, const StepPlan& plan, Checkpoints& checkpoints)
      : worker_(worker), plan_(plan), checkpoints_(checkpoints) {}

  /// True if the samples of this step are to be skipped.
  bool is_bad(int64_t step) const;
  /// Describes the fault of a step that ran at `state`; empty if it is good.
  std::string fault_of(const engine::StepResult& result, const RunState& state) const;
  void note_good(const engine::StepResult& result, RunState& state);
  /// True if another bad step may be skipped.
  bool may_skip(const RunState& state) const;
  /// Marks the step at `state` as bad and returns to the newest checkpoint; calls `start_over` if there is
  /// none.
  void roll_back(const engine::StepResult& result, RunState& state, FunctionRef<void()> start_over);
  /// The leader's: throws a UserError that names the first tensor that is not finite.
  [[noreturn]] void stop(const engine::StepResult& result, const RunState& state, const std::string& fault);

 private:
  void discard_unsound(const engine::StepResult& result);
  std::string find_not_finite(const RunState& state) const;

  Worker worker_;
  const StepPlan& plan_;
  Checkpoints& checkpoints_;
  std::vector<int64_t> bad_steps_;  ///< found in this session
  int64_t last_good_step_ = -1;     ///< the last step whose weights gave a finite loss
};

}  // namespace hearth::run
