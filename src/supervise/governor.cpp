#include "supervise/governor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hearth::supervise {

/// Parameters of a proportional-integral controller with a lead term. Its output is the idle share: the
/// fraction of time that the GPU is kept idle. The share is proportional * predicted excess + integral,
/// clamped to [0, kMaxIdle]. The predicted excess extrapolates the filtered excess by ahead_seconds along its
/// slope, so that the controller reacts before slow heating arrives. While the excess is positive, the
/// integral gain is multiplied by `attack`, so that the share rises faster than it falls. The integral is
/// clamped to prevent windup.
struct Governor::Gains {
  bool peak;  ///< true: the max of the samples in the window is controlled; false: their mean
  double target;
  double min_window_seconds;  ///< min length of the window; it is longer if training steps are long
  double filter_seconds;
  double ahead_seconds, slow_seconds;
  double proportional, integral, attack;
};

// Time constants: the die responds to idle time within 1 to 2 s, the cooler within minutes; sensors have
// delay and noise. In long steps, the die reaches its steady temperature in every step, and idle time changes
// only the temperature of the cooler: therefore the peak of a step is controlled. For fast changes the gain
// is 0.024 per K, which keeps the loop gain below 1 for a die that cools by 30 K at a share of 1. The
// integral rises fast, because heat damages the GPU, and falls within minutes, as the cooler's temperature
// does.
constexpr Governor::Gains Governor::kHeatGains{.peak = true,
                                               .target = -4,
                                               .min_window_seconds = 8,
                                               .filter_seconds = 3,
                                               .ahead_seconds = 30,
                                               .slow_seconds = 30,
                                               .proportional = 0.012,
                                               .integral = 0.0002,
                                               .attack = 10};
/// Parameters for power; the excess is a fraction of the power limit. No lead term, because power responds at
/// once.
constexpr Governor::Gains Governor::kPowerGains{.peak = false,
                                                .target = -0.03,
                                                .min_window_seconds = 8,
                                                .filter_seconds = 8,
                                                .ahead_seconds = 0,
                                                .slow_seconds = 30,
                                                .proportional = 0.2,
                                                .integral = 0.02,
                                                .attack = 1};

namespace {

/// The published share changes only if the requested share differs from it by more than this, so that noise
/// has no effect.
constexpr double kBand = 0.05;
/// Hysteresis around zero: the share becomes nonzero when it is requested to be at least kFirstShare, and
/// becomes 0 again when it was below kMinShare for kUnwantedSeconds.
constexpr double kFirstShare = 0.08, kMinShare = 0.02, kUnwantedSeconds = 30;
/// After kLongPause seconds, a pause ends as soon as the GPU is kCooled K below its limit, even if it is not
/// kResumeBelow K below it.
constexpr double kCooled = 8, kLongPause = 600;

}  // namespace

std::optional<Excess> excess_of(const system::GpuReading& reading, double limit) {
  std::optional<Excess> worst;
  const auto look = [&](const char* sensor, float celsius, double sensor_limit) {
    if (!std::isfinite(celsius) || !std::isfinite(sensor_limit)) return;
    if (worst && worst->kelvin >= celsius - sensor_limit) return;
    worst = {.kelvin = celsius - sensor_limit, .celsius = celsius, .limit = sensor_limit, .sensor = sensor};
  };
  const bool has_junction = std::isfinite(reading.junction);
  const auto own = [](float sensor_limit) { return sensor_limit - Governor::kMargin; };
  look("", reading.hottest(),
       limit > 0 ? limit : own(has_junction ? reading.junction_limit : reading.edge_limit));
  if (has_junction) look(" at its edge", reading.edge, own(reading.edge_limit));
  look(" in its memory", reading.memory, own(reading.memory_limit));
  return worst;
}

double Governor::Loop::advance(const Gains& gains, double over, double seconds, double period, bool paused) {
  for (Sample& sample : recent) sample.age += seconds;
  recent.push_back({.value = over - gains.target, .age = 0});
  while (recent.front().age > std::max(gains.min_window_seconds, 1.3 * period + 1)) recent.pop_front();
  double highest = -INFINITY, sum = 0;
  for (const Sample& sample : recent) {
    highest = std::max(highest, sample.value);
    sum += sample.value;
  }
  const double now = gains.peak ? highest : sum / static_cast<double>(recent.size());
  if (!std::exchange(begun, true)) value = slow = now;
  value += (now - value) * std::min(1.0, seconds / gains.filter_seconds);
  slow += (value - slow) * std::min(1.0, seconds / gains.slow_seconds);
  const double ahead = value + gains.ahead_seconds / gains.slow_seconds * (value - slow);
  // Not during a pause: then the GPU cools, whatever share it will need later.
  if (!paused)
    integral = std::clamp(integral + gains.integral * (ahead > 0 ? gains.attack : 1) * ahead * seconds, 0.0,
                          kMaxIdle);
  return std::clamp(gains.proportional * ahead + integral, 0.0, kMaxIdle);
}

void Governor::update(std::span<const system::GpuReading> readings, double seconds, double period) {
  gpus_.resize(readings.size());
  reason_.clear();
  double requested_share = 0;
  for (size_t i = 0; i < readings.size(); ++i)
    requested_share = std::max(requested_share, govern(i, readings[i], seconds, period));
  decide_pause(requested_share, seconds, period);
  show(requested_share, seconds);
}

double Governor::govern(size_t i, const system::GpuReading& reading, double seconds, double period) {
  Gpu& gpu = gpus_[i];
  double requested_share = 0;
  const auto want = [&](double share, const std::string& why) {
    if (share <= requested_share) return;
    requested_share = share;
    reason_ = fmt::format("GPU {} ({}) {}", i, reading.name(), why);
  };
  if (const auto excess = excess_of(reading, options_.limit)) {
    want(gpu.heat.advance(kHeatGains, excess->kelvin, seconds, period, paused_),
         fmt::format("has {:.0f} C{}, limit {:.0f} C", excess->celsius, excess->sensor, excess->limit));
  } else {
    gpu.heat = {};
  }
  if (options_.power_limit > 0 && std::isfinite(reading.power)) {
    want(gpu.power.advance(kPowerGains, reading.power / options_.power_limit - 1, seconds, period, paused_),
         fmt::format("takes {:.0f} W, limit {:.0f} W", reading.power, options_.power_limit));
  }
  return requested_share;
}

/// Starts or ends a pause. Pauses depend on temperature only, not on power.
void Governor::decide_pause(double requested_share, double seconds, double period) {
  double excess = -INFINITY;
  for (const Gpu& gpu : gpus_) {
    if (!gpu.heat.begun) continue;
    excess = std::max(excess, gpu.heat.value + kHeatGains.target);
  }
  if (paused_) {
    paused_seconds_ += seconds;
    const bool is_cool = excess < -kResumeBelow || (excess < -kCooled && paused_seconds_ >= kLongPause);
    paused_ = std::isfinite(excess) && (paused_seconds_ < options_.min_pause_seconds || !is_cool);
    return;
  }
  const bool does_not_cool = requested_share >= kMaxIdle && excess > 0.9 * kHeatGains.target;
  seconds_at_max_share_ = does_not_cool || excess > kMargin ? seconds_at_max_share_ + seconds : 0;
  paused_ = seconds_at_max_share_ >= std::max(options_.pause_after_seconds, 2 * period);
  paused_seconds_ = 0;
}

void Governor::show(double requested_share, double seconds) {
  unwanted_seconds_ = requested_share < kMinShare ? unwanted_seconds_ + seconds : 0;
  if (shown_ == 0 ? requested_share < kFirstShare : unwanted_seconds_ >= kUnwantedSeconds) {
    shown_ = 0;
  } else {
    shown_ = requested_share >= kMaxIdle
                 ? kMaxIdle
                 : std::clamp(shown_, std::max(kMinShare, requested_share - kBand), requested_share + kBand);
  }
}

}  // namespace hearth::supervise
