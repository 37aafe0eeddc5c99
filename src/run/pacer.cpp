#include "run/pacer.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/process.h"

namespace hearth::run {
namespace {

using Clock = std::chrono::steady_clock;

/// Time between two heartbeats during a sleep.
constexpr std::chrono::milliseconds kBeat{50};
/// Max sleep after a step; with a longer one the run would look stuck to users.
constexpr double kMaxRestSeconds = 120;

/// Fraction of idle time after the first step, and the time in which it decreases to 0.
constexpr double kRampShare = 0.5, kRampSeconds = 20;

}  // namespace

double Pacer::ramp_share(double seconds) {
  return kRampShare * std::clamp(1 - seconds / kRampSeconds, 0.0, 1.0);
}

std::optional<supervise::GpuState> Pacer::readings() const {
  if (events_.gpus == nullptr) return std::nullopt;
  std::optional<supervise::GpuState> state = events_.gpus->read();
  if (state->number == 0) state.reset();
  return state;
}

double Pacer::rest_seconds(double step_seconds) const {
  if (events_.gpus == nullptr) return 0;
  if (started_ < 0) started_ = process_seconds();
  double share = events_.gpus->idle_share();
  const double ramp = ramp_share(process_seconds() - started_);
  if (ramp > share && readings()) share = ramp;
  const double seconds = std::min(kMaxRestSeconds, step_seconds * share / (1 - share));
  events_.gpus->set_period(step_seconds + seconds);
  return seconds;
}

void Pacer::rest(double seconds) const {
  if (seconds <= 0) return;
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const distributed::Phase before = events_.heartbeat.switch_phase(distributed::Phase::resting);
  for (auto now = Clock::now(); now < until && !is_stopped(); now = Clock::now()) {
    std::this_thread::sleep_for(std::min<Clock::duration>(kBeat, until - now));
    events_.heartbeat.beat();
  }
  events_.heartbeat.switch_phase(before);
}

double Pacer::wait_while_paused() const {
  const auto began = Clock::now();
  while (is_paused() && !is_stopped()) rest(std::chrono::duration<double>(kBeat).count());
  return std::chrono::duration<double>(Clock::now() - began).count();
}

}  // namespace hearth::run
