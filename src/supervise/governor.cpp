#include "supervise/governor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hearth::supervise {

/// Gains of a proportional-integral controller with a lead term. The idle share is proportional * predicted
/// excess + integral, clamped to [0, kMostIdle]. The predicted excess extrapolates the filtered excess by
/// ahead_seconds along its slope, so the controller reacts before slow heat arrives. `attack` multiplies the
/// integral gain while the excess is positive: the share rises faster than it falls. Clamping the integral
/// prevents windup.
struct Governor::Law {
  bool peak;  ///< true: the maximum of a window counts; false: its mean
  double target;
  double least_window;  ///< min. length of the window
  double filter_seconds;
  double ahead_seconds, slow_seconds;
  double proportional, integral, attack;
};

// Time constants: dies respond to idle time within 1 to 2 s, coolers within minutes; sensors have delay and
// noise. In long steps the die reaches its steady temperature in each step, and only the cooler responds: so
// the peak of a step is controlled. Fast changes see a gain of 0.024 per K, which keeps the loop gain below 1
// for a die that cools by 30 K at a share of 1. The integral rises fast, since heat does damage, and falls
// within minutes, like a cooler's temperature.
constexpr Governor::Law Governor::kHeatLaw{.peak = true,
                                           .target = -4,
                                           .least_window = 8,
                                           .filter_seconds = 3,
                                           .ahead_seconds = 30,
                                           .slow_seconds = 30,
                                           .proportional = 0.012,
                                           .integral = 0.0002,
                                           .attack = 10};
/// Controls the excess power as a fraction of the limit. Power responds at once.
constexpr Governor::Law Governor::kPowerLaw{.peak = false,
                                            .target = -0.03,
                                            .least_window = 8,
                                            .filter_seconds = 8,
                                            .ahead_seconds = 0,
                                            .slow_seconds = 30,
                                            .proportional = 0.2,
                                            .integral = 0.02,
                                            .attack = 1};

namespace {

/// Dead band around the published share, so noise does not change it.
constexpr double kBand = 0.05;
/// Hysteresis: the share becomes nonzero at kFirstShare and returns to 0 after kUnwantedSeconds below
/// kLeastShare.
constexpr double kFirstShare = 0.08, kLeastShare = 0.02, kUnwantedSeconds = 30;
/// A pause also ends after kLongPause seconds if the GPU is at least kCooled K below the limit.
constexpr double kCooled = 8, kLongPause = 600;

}  // namespace

std::optional<Excess> excess_of(const system::GpuReading& reading, double limit) {
  std::optional<Excess> worst;
  const auto look = [&](const char* place, float celsius, double most) {
    if (!std::isfinite(celsius) || !std::isfinite(most)) return;
    if (worst && worst->kelvin >= celsius - most) return;
    worst = {.kelvin = celsius - most, .celsius = celsius, .limit = most, .place = place};
  };
  const bool has_junction = std::isfinite(reading.junction);
  const auto own = [](float most) { return most - Governor::kMargin; };
  look("", reading.hottest(),
       limit > 0 ? limit : own(has_junction ? reading.junction_limit : reading.edge_limit));
  if (has_junction) look(" at its edge", reading.edge, own(reading.edge_limit));
  look(" in its memory", reading.memory, own(reading.memory_limit));
  return worst;
}

double Governor::Loop::advance(const Law& law, double over, double seconds, double period, bool paused) {
  for (Sample& sample : recent) sample.age += seconds;
  recent.push_back({.value = over - law.target, .age = 0});
  while (recent.front().age > std::max(law.least_window, 1.3 * period + 1)) recent.pop_front();
  double highest = -INFINITY, sum = 0;
  for (const Sample& sample : recent) {
    highest = std::max(highest, sample.value);
    sum += sample.value;
  }
  const double now = law.peak ? highest : sum / static_cast<double>(recent.size());
  if (!std::exchange(begun, true)) value = slow = now;
  value += (now - value) * std::min(1.0, seconds / law.filter_seconds);
  slow += (value - slow) * std::min(1.0, seconds / law.slow_seconds);
  const double ahead = value + law.ahead_seconds / law.slow_seconds * (value - slow);
  // Cooling during a pause says nothing about the share that is needed while running.
  if (!paused)
    integral =
        std::clamp(integral + law.integral * (ahead > 0 ? law.attack : 1) * ahead * seconds, 0.0, kMostIdle);
  return std::clamp(law.proportional * ahead + integral, 0.0, kMostIdle);
}

void Governor::update(std::span<const system::GpuReading> readings, double seconds, double period) {
  gpus_.resize(readings.size());
  reason_.clear();
  double wish = 0;
  for (size_t i = 0; i < readings.size(); ++i) wish = std::max(wish, govern(i, readings[i], seconds, period));
  decide_pause(wish, seconds, period);
  show(wish, seconds);
}

double Governor::govern(size_t i, const system::GpuReading& reading, double seconds, double period) {
  Gpu& gpu = gpus_[i];
  double wish = 0;
  const auto want = [&](double share, const std::string& why) {
    if (share <= wish) return;
    wish = share;
    reason_ = fmt::format("GPU {} ({}) {}", i, reading.name(), why);
  };
  if (const auto excess = excess_of(reading, options_.limit)) {
    want(gpu.heat.advance(kHeatLaw, excess->kelvin, seconds, period, paused_),
         fmt::format("has {:.0f} C{}, limit {:.0f} C", excess->celsius, excess->place, excess->limit));
  } else {
    gpu.heat = {};
  }
  if (options_.power_limit > 0 && std::isfinite(reading.power)) {
    want(gpu.power.advance(kPowerLaw, reading.power / options_.power_limit - 1, seconds, period, paused_),
         fmt::format("takes {:.0f} W, limit {:.0f} W", reading.power, options_.power_limit));
  }
  return wish;
}

/// Starts or ends a pause. Only temperature causes pauses; power does not.
void Governor::decide_pause(double wish, double seconds, double period) {
  double excess = -INFINITY;
  for (const Gpu& gpu : gpus_) {
    if (!gpu.heat.begun) continue;
    excess = std::max(excess, gpu.heat.value + kHeatLaw.target);
  }
  if (paused_) {
    paused_seconds_ += seconds;
    const bool is_cool = excess < -kResumeBelow || (excess < -kCooled && paused_seconds_ >= kLongPause);
    paused_ = std::isfinite(excess) && (paused_seconds_ < options_.least_pause_seconds || !is_cool);
    return;
  }
  const bool does_not_cool = wish >= kMostIdle && excess > 0.9 * kHeatLaw.target;
  at_most_seconds_ = does_not_cool || excess > kMargin ? at_most_seconds_ + seconds : 0;
  paused_ = at_most_seconds_ >= std::max(options_.pause_after_seconds, 2 * period);
  paused_seconds_ = 0;
}

void Governor::show(double wish, double seconds) {
  unwanted_seconds_ = wish < kLeastShare ? unwanted_seconds_ + seconds : 0;
  if (shown_ == 0 ? wish < kFirstShare : unwanted_seconds_ >= kUnwantedSeconds) {
    shown_ = 0;
  } else {
    shown_ =
        wish >= kMostIdle ? kMostIdle : std::clamp(shown_, std::max(kLeastShare, wish - kBand), wish + kBand);
  }
}

}  // namespace hearth::supervise
