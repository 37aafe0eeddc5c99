// Rests between steps while the GPUs are hot.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "run/gpu_readings.h"
#include "run/trainer.h"

namespace hearth::run {
namespace {

using Clock = std::chrono::steady_clock;

/// Between two beats of a worker that rests.
constexpr std::chrono::milliseconds kBeat{50};
/// A longer gap would leave people wondering, whatever the share.
constexpr double kMostRestSeconds = 120;

}  // namespace

double Trainer::rest_seconds(double step_seconds) const {
  if (events_.gpus == nullptr || !leads()) return 0;
  const double share = events_.gpus->idle_share();
  const double seconds = std::min(kMostRestSeconds, step_seconds * share / (1 - share));
  events_.gpus->tell_period(step_seconds + seconds);
  return seconds;
}

void Trainer::rest(double seconds) const {
  if (seconds <= 0) return;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const distributed::Phase before = events_.heartbeat.turn_to(distributed::Phase::resting);
  for (auto now = Clock::now(); now < until && (events_.stop == nullptr || !*events_.stop);
       now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(kBeat, until - now));
    events_.heartbeat.beat();
  }
  events_.heartbeat.turn_to(before);
}

void Trainer::wait_while_hot(const engine::StepResult& result) {
  engine_->gather_states();
  const bool saves = std::isfinite(result.loss);
  const auto say = [&](const std::string& text) { sink_->event({.step = state_.step, .text = text}); };
  if (leads() && saves) {
    save_checkpoint();
    checkpoints_->flush();
  }
  say(
      fmt::format("paused after step {}: {}, and gaps between steps do not cool it{}; training continues by "
                  "itself when it is cool",
                  state_.step, events_.gpus->read().reason.data(), saves ? "; a checkpoint is saved" : ""));
  const auto began = Clock::now();
  while (events_.gpus->paused() && (events_.stop == nullptr || !*events_.stop))
    rest(std::chrono::duration<double>(kBeat).count());
  say(fmt::format("continued after a pause of {:.0f} s: {}",
                  std::chrono::duration<double>(Clock::now() - began).count(),
                  gpu_text(events_.gpus->read())));
}

}  // namespace hearth::run
