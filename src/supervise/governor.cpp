#include "supervise/governor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace hearth::supervise {

/// The share that is wanted is proportional to how far a quantity will be over its target, and to the
/// integral of that, which rises faster than it falls.
struct Governor::Law {
  bool peak;  ///< of a period what is highest counts, or the mean
  double target;
  double least_window;  ///< seconds
  double filter_seconds;
  double ahead_seconds, slow_seconds;
  double proportional, integral, attack;
};

// Dies answer to a gap in a second or two, coolers in minutes, sensors late and with noise. Where steps are
// long the die comes to its full heat in each, and only the cooler answers: so the peak of a period is what
// is governed. What changes within seconds meets a gain of 0.024 a K: below 1 in a loop over a die that has
// 30 K for the whole share. The integral rises fast, for heat is what harms, and falls in minutes, as a
// cooler does.
constexpr Governor::Law Governor::kHeatLaw{.peak = true,
                                           .target = -4,
                                           .least_window = 8,
                                           .filter_seconds = 3,
                                           .ahead_seconds = 30,
                                           .slow_seconds = 30,
                                           .proportional = 0.012,
                                           .integral = 0.0002,
                                           .attack = 10};
/// Of the power's excess as a share of its limit: it answers at once.
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

/// Around the share that is shown: noise moves nothing within it.
constexpr double kBand = 0.05;
/// A share begins where so much is wanted, and ends where almost none has been wanted for a while.
constexpr double kFirstShare = 0.08, kLeastShare = 0.02, kUnwantedSeconds = 30;
/// What has cooled by so much in so long a pause may take longer than anyone waits to cool further.
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
  // How it cools in a pause says nothing of the share that it needs.
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

/// Heat is a reason, power is none.
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
