#include "run/step_plan.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "run/schedule.h"

namespace hearth::run {

int64_t StepPlan::steps_per_epoch() const {
  return (task_.num_rows() + rows_per_step() - 1) / rows_per_step();
}

void StepPlan::count_steps(const RunState& state) {
  total_steps_ = recipe_.train.steps;
  if (total_steps_ > 0) return;
  // Counts the rest of the epoch in rows, because steps before a resume may have had another batch size.
  const int64_t rows_left = task_.num_rows() - state.position.sample;
  total_steps_ = state.step + (rows_left + rows_per_step() - 1) / rows_per_step() +
                 (recipe_.train.epochs - 1 - state.position.epoch) * steps_per_epoch();
  check_prune_steps();
}

void StepPlan::check_prune_steps() const {
  if (recipe_.prune.method == PruneMethod::none || recipe_.prune.last_step() < total_steps_) return;
  user_error("pruning after {} updates is after the last of {}; lower prune.to_step or raise train.epochs",
             recipe_.prune.last_step(), total_steps_);
}

std::optional<StepPlan::PruneTarget> StepPlan::prune_target(int64_t step) const {
  const recipe::Prune& prune = recipe_.prune;
  const int64_t done = step - prune.from_step, span = prune.last_step() - prune.from_step;
  if (prune.method == PruneMethod::none || done < 0 || done > span) return std::nullopt;
  if (done % prune.every != 0 && done != span) return std::nullopt;
  const bool is_rigl = prune.method == PruneMethod::rigl;
  if (!is_rigl && done == 0 && span > 0) return std::nullopt;  // The schedule begins with a sparsity of 0.
  const double fraction = span == 0 ? 1 : static_cast<double>(done) / static_cast<double>(span);
  if (!is_rigl) return PruneTarget{.sparsity = prune.sparsity * (1 - std::pow(1 - fraction, 3))};
  const double exchanged = prune.drop / 2 * (1 + std::cos(std::numbers::pi * fraction));
  const double dropped = done == 0 ? 0 : (1 - prune.sparsity) * exchanged;
  return PruneTarget{.sparsity = prune.sparsity, .dropped = prune.sparsity + dropped};
}

double StepPlan::learning_rate(int64_t step) const {
  return run::learning_rate(recipe_.schedule, recipe_.optimizer.lr, step, total_steps_);
}

int64_t StepPlan::num_rows(const data::LoaderPosition& position) const {
  return std::min(task_.num_rows() - position.sample, rows_per_step());
}

int64_t StepPlan::num_micro(const data::LoaderPosition& position) const {
  return (num_rows(position) + recipe_.train.batch - 1) / recipe_.train.batch;
}

void StepPlan::advance(RunState& state) const {
  ++state.step;
  state.position = data::advanced(state.position, num_rows(state.position), task_.num_rows());
}

bool StepPlan::has_equal_weights(int64_t step) const {
  return step % recipe_.exchange.local_steps == 0 || is_last(step);
}

bool StepPlan::is_evaluated(int64_t step) const {
  const int64_t every = recipe_.train.eval_every > 0 ? recipe_.train.eval_every : steps_per_epoch();
  // With local steps, an evaluation that is due between two outer steps is delayed to the next outer step.
  const bool is_due = step / every > (step - recipe_.exchange.local_steps) / every;
  return is_last(step) || (is_due && has_equal_weights(step));
}

}  // namespace hearth::run
