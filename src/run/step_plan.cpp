#include "run/step_plan.h"

#include <algorithm>

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
