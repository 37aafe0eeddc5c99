#include "run/rollback.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/inspect.h"

namespace hearth::run {
namespace {

/// Number of consecutive bad steps after which a run ends, because this many are not caused by bad samples
/// alone.
constexpr int64_t kMaxInRow = 3;

bool is_finite(const engine::StepResult& result) { return !result.skipped && std::isfinite(result.loss); }

/// Clears the sums that are carried from one micro-batch to the next (gradient accumulation). A non-finite
/// value in them could persist, because some updates multiply the old value by 0, and 0 times infinity is
/// NaN.
void clear_sums(engine::Engine& engine) {
  for (const exec::PersistentBuffer& buffer : engine.plan().layout->buffers()) {
    if (buffer.role == ir::Role::carried)
      std::fill_n(engine.data(buffer), buffer.type.num_bytes(), std::byte{});
  }
}

}  // namespace

bool Rollback::is_bad(int64_t step) const { return std::ranges::find(bad_steps_, step) != bad_steps_.end(); }

std::string Rollback::describe_fault(const engine::StepResult& result, const RunState& state) const {
  if (!is_finite(result)) {
    const bool overflow_only =
        worker_.recipe.precision == DType::f16 && engine::loss_scale(worker_.engine) >= 1;
    if (overflow_only) return "";
    return std::isnan(result.loss)       ? "the loss is NaN"
           : !std::isfinite(result.loss) ? "the loss is infinite"
                                         : "the gradients are not finite";
  }
  const double limit = worker_.recipe.bad_steps.z_score;
  const double z_score = limit > 0 ? state.losses.z_score(result.loss) : 0;
  if (z_score <= limit) return "";
  return fmt::format("the loss is {:.4g}, {:.1f} standard deviations above the mean of {:.4g}", result.loss,
                     z_score, state.losses.mean);
}

void Rollback::record_good_step(const engine::StepResult& result, RunState& state) {
  state.num_bad_in_row = 0;
  // With fp16, the update was skipped because the loss scale was too high. The step is then neither good nor
  // bad.
  if (result.skipped) return;
  last_good_step_ = state.step;
  state.losses.add(result.loss);
}

bool Rollback::may_skip(const RunState& state) const {
  // Without an earlier finite loss (losses.count = 0) there is no good step to return to.
  return state.losses.count > 0 && state.num_bad < worker_.recipe.bad_steps.max &&
         state.num_bad_in_row + 1 < kMaxInRow;
}

void Rollback::roll_back(const engine::StepResult& result, RunState& state, FunctionRef<void()> start_over) {
  bad_steps_.push_back(state.step);
  worker_.events.heartbeat.beat(distributed::Phase::saving, state.step);
  if (worker_.leads()) discard_bad_checkpoints(result);
  worker_.barrier();
  if (std::optional<RunState> restored = checkpoints_.restore_newest())
    state = std::move(*restored);
  else
    start_over();
  clear_sums(worker_.engine);
  worker_.barrier();
}

// Checkpoints after the last good step have weights with a non-finite loss, so they are useless. If all
// checkpoints are later, discard_after() keeps them.
void Rollback::discard_bad_checkpoints(const engine::StepResult& result) {
  checkpoints_.flush();
  if (!is_finite(result)) checkpoints_.discard_after(last_good_step_);
}

std::string Rollback::find_not_finite(const RunState& state) const {
  const std::unique_ptr<tasks::BatchStream> stream = worker_.task.open(state.position);
  for (int64_t i = 0; i < plan_.num_micro(state.position); ++i) {
    std::string found = engine::Inspector(worker_.engine).find_not_finite(stream->next(), state.step, i);
    if (!found.empty()) return found;
  }
  return "the sum of all gradients";
}

void Rollback::stop(const engine::StepResult& result, const RunState& state, const std::string& fault) {
  worker_.events.heartbeat.beat(distributed::Phase::finishing, state.step);
  const bool is_spike = is_finite(result);
  const bool can_look = !is_spike && !worker_.engine.plan().evaluates_jointly;
  const std::string first = can_look ? ", first in " + find_not_finite(state) : "";
  discard_bad_checkpoints(result);
  const auto kept = checkpoints_.newest();
  user_error("training stopped at step {}: {}{}{}; {}; lower optimizer.lr or set train.clip_norm=1{}",
             state.step + 1, fault, first,
             state.num_bad == 0 ? "" : fmt::format(", after {} skipped steps", state.num_bad),
             kept ? fmt::format("the last good checkpoint is {}", kept->path.string())
                  : std::string("there is no earlier checkpoint"),
             is_spike ? ", or raise bad_steps.z_score" : "");
}

}  // namespace hearth::run
