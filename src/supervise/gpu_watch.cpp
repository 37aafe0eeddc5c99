#include "supervise/gpu_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hearth::supervise {
namespace {

using namespace std::chrono_literals;

/// Min time between two messages about the idle share, because a GPU near its limit may change its state for
/// hours.
constexpr auto kBetweenSentences = 10min;
/// Age at which readings are outdated. Not shorter, because when a GPU hangs, its sensors are disabled one
/// after the other.
constexpr auto kStale = 60s;
/// Max time step of the controller, used when the machine was suspended between two readings.
constexpr double kMaxSeconds = 10;

bool says_nothing(const system::GpuReading& reading) {
  return std::isnan(reading.hottest()) && std::isnan(reading.memory) && std::isnan(reading.power) &&
         std::isnan(reading.clock);
}

}  // namespace

GpuWatch::GpuWatch(system::SamplerOptions sensors, GovernorOptions limits,
                   std::function<void(const std::string&)> say)
    : sampler_(std::move(sensors), say), limits_(limits), governor_(limits), say_(std::move(say)) {}

void GpuWatch::look(int num_workers) {
  const std::vector<std::string> gpus = board_.used(num_workers);
  if (gpus.empty()) return;
  if (gpus != gpus_) {
    gpus_ = gpus;
    has_no_readings_ = false;
    governor_ = Governor(limits_);
    sampler_.watch(gpus);
  }
  if (!has_no_readings_ && sampler_.look()) {
    take_sample();
  } else if (num_samples_ > 0 && Clock::now() - sampled_ > kStale) {
    reset_governor();
  }
}

void GpuWatch::take_sample() {
  const auto readings = sampler_.readings();
  const auto now = Clock::now();
  const double seconds = num_samples_ == 0 ? 0 : std::chrono::duration<double>(now - sampled_).count();
  sampled_ = now;
  ++num_samples_;
  // Emulated GPUs have no sensors, and some drivers report none.
  has_no_readings_ = std::ranges::all_of(readings, says_nothing);
  if (has_no_readings_) return reset_governor();
  governor_.update(readings, std::min(seconds, kMaxSeconds), board_.period());
  publish();
  report_share();
}

/// Resets the governor when readings are missing: otherwise, idle time or a pause would never end.
void GpuWatch::reset_governor() {
  const bool held = governor_.idle_share() > 0 || governor_.paused();
  governor_ = Governor(limits_);
  publish();
  sampled_ = Clock::now();
  is_slowing_ = false;
  if (held)
    say_("the GPUs' sensors no longer respond: training continues without gaps between steps and pauses");
}

void GpuWatch::publish() {
  GpuState state{.number = has_no_readings_ ? 0 : num_samples_,
                 .idle_share = governor_.idle_share(),
                 .paused = governor_.paused()};
  state.reason.back() = '\0';
  const std::string& reason = governor_.reason();
  std::copy_n(reason.begin(), std::min(reason.size(), state.reason.size() - 1), state.reason.begin());
  const auto readings = sampler_.readings();
  state.num_gpus = static_cast<uint32_t>(std::min(readings.size(), GpuState::kMaxGpus));
  std::copy_n(readings.begin(), state.num_gpus, state.readings.begin());
  board_.publish(state);
}

void GpuWatch::report_share() {
  const bool slows = governor_.idle_share() > 0;
  if (slows == is_slowing_ || (said_ != Clock::time_point{} && Clock::now() - said_ < kBetweenSentences))
    return;
  is_slowing_ = slows;
  said_ = Clock::now();
  say_(slows ? fmt::format("slowing down by gaps between steps, {:.0f}% of the time: {}",
                           100 * governor_.idle_share(), governor_.reason())
             : "no more gaps between steps: every GPU is below its limits");
}

}  // namespace hearth::supervise
