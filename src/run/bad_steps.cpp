#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/inspect.h"
#include "run/trainer.h"

namespace hearth::run {
namespace {

/// So many one after the other are no accident of the data.
constexpr int64_t kMostInRow = 3;

}  // namespace

bool Trainer::is_bad(int64_t step) const { return std::ranges::find(bad_steps_, step) != bad_steps_.end(); }

std::string Trainer::fault_of(const engine::StepResult& result) const {
  if (result.skipped || !std::isfinite(result.loss)) {
    const bool overflow_only =
        recipe_.precision == recipe::Precision::fp16 && engine::loss_scale(*engine_) >= 1;
    if (overflow_only) return "";
    return std::isnan(result.loss)       ? "a loss that is not a number"
           : !std::isfinite(result.loss) ? "an infinite loss"
                                         : "gradients that are not finite";
  }
  const double z_score = recipe_.bad_steps.z_score > 0 ? state_.losses.z_score(result.loss) : 0;
  if (z_score <= recipe_.bad_steps.z_score) return "";
  return fmt::format("a loss of {:.4g}, {:.1f} deviations above the mean of {:.4g}", result.loss, z_score,
                     state_.losses.mean);
}

bool Trainer::may_skip() const {
  // Where no loss was ever right, no update before this one can be gone back to.
  return state_.losses.count > 0 && state_.num_bad < recipe_.bad_steps.most &&
         state_.num_bad_in_row + 1 < kMostInRow;
}

void Trainer::roll_back(const engine::StepResult& result, const std::string& fault) {
  const int64_t bad = state_.step;
  bad_steps_.push_back(bad);
  beat(distributed::Phase::saving);
  if (leads()) discard_unsound(result);
  if (group_ != nullptr) group_->barrier();
  if (restore_newest(nullptr).empty()) start_over();
  clear_sums();
  if (group_ != nullptr) group_->barrier();
  const std::string text =
      fmt::format("step {} came to {}: back to step {}, and its samples will be left out (bad_steps.most={})",
                  bad + 1, fault, state_.step, recipe_.bad_steps.most);
  sink_->event({.step = bad + 1, .text = text});
  stream_.emplace(task_->open(state_.position, engine_->share()));
}

/// Weights that give no finite loss are of no use to continue from, unless they are all there is.
void Trainer::discard_unsound(const engine::StepResult& result) {
  checkpoints_->flush();
  if (result.skipped || !std::isfinite(result.loss)) checkpoints_->discard_behind(last_good_step_);
}

void Trainer::start_over() {
  std::ranges::fill(engine_->state(), std::byte{});
  engine_->initialize();
  load_first_weights();
  state_ = {.position = {.seed = recipe_.seed}};
  evaluate_first_weights();
}

/// What micro-batches hand on to one another would stay what it is: 0 times infinity is not 0.
void Trainer::clear_sums() {
  for (const exec::PersistentBuffer& buffer : engine_->compiled().layout->buffers()) {
    if (buffer.role == ir::Role::carried)
      std::fill_n(engine_->data(buffer), buffer.type.num_bytes(), std::byte{});
  }
}

engine::StepResult Trainer::leave_out_one() {
  const data::LoaderShare own = engine_->share();
  for (int64_t i = own.first; i < std::min(own.first + own.count, num_micro()); ++i) stream_->next();
  ++state_.num_bad;
  ++state_.num_bad_in_row;
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  return {.loss = kNone, .grad_norm = kNone, .skipped = true};
}

std::string Trainer::find_not_finite() {
  const std::unique_ptr<tasks::BatchStream> stream = task_->open(state_.position);
  for (int64_t i = 0; i < num_micro(); ++i) {
    std::string found = engine::Inspector(*engine_).find_not_finite(stream->next(), state_.step, i);
    if (!found.empty()) return found;
  }
  return "the sum over all gradients";
}

void Trainer::stop_for_bad_step(const engine::StepResult& result, const std::string& fault) {
  beat(distributed::Phase::finishing);
  const bool is_finite = !result.skipped && std::isfinite(result.loss);
  const bool can_look = !is_finite && !engine_->compiled().evaluates_together;
  const std::string first = can_look ? ", first made by " + find_not_finite() : "";
  discard_unsound(result);
  const auto kept = io::find_newest_checkpoint(out_ / "checkpoints", nullptr);
  user_error(
      "expected a finite loss{}, got {} at step {}{}{}; {}; try a lower optimizer.lr or train.clip_norm=1{}",
      is_finite ? " like those before" : "", fault, state_.step + 1, first,
      state_.num_bad == 0 ? "" : fmt::format(", when {} steps had been left out", state_.num_bad),
      kept ? fmt::format("the last good checkpoint is {}", kept->path.string())
           : std::string("no checkpoint was due before it"),
      is_finite ? ", or a higher bad_steps.z_score" : "");
}

}  // namespace hearth::run
