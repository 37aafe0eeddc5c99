#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "system/gpu_reading.h"

namespace hearth::supervise {

/// Excess of the sensor that is furthest above its limit, in K. The limit of the junction (or edge) is
/// `limit`, or if that is 0, Governor::kMargin below the GPU's limit; memory and edge have the GPU's limits
/// minus the margin.
struct Excess {
  double kelvin = 0;
  double celsius = 0, limit = 0;  ///< temperature of that sensor and its limit
  const char* sensor = "";
};
/// Returns the largest excess of a GPU; nothing if no temperature or no limit is known.
std::optional<Excess> excess_of(const system::GpuReading& reading, double limit);

/// Limits of the Governor.
struct GovernorOptions {
  double limit = 0;  ///< of the junction (or edge) in Celsius; 0: Governor::kMargin below the GPU's limit
  double power_limit = 0;  ///< watts per GPU, averaged over some seconds; 0: none
  double pause_after_seconds =
      3;  ///< duration for which the max. share does not cool the GPU, before a pause
  double min_pause_seconds = 120;
};

/// Keeps GPUs below a temperature and a power limit by idling a share of the time, before they throttle or
/// the machine shuts down. If even the max. share is not enough, requests a pause. Each GPU has
/// proportional-integral controllers for heat and power; the largest requested share applies. Deterministic:
/// the same readings give the same shares.
class Governor {
 public:
  static constexpr double kMargin = 5;        ///< K below the GPU's limit
  static constexpr double kMaxIdle = 0.8;     ///< max. share of idle time
  static constexpr double kResumeBelow = 15;  ///< K below the limit at which a pause ends

  explicit Governor(GovernorOptions options) : options_(options) {}

  /// Updates the controllers with one reading per GPU, always of the same GPUs in the same order. `seconds`:
  /// time since the previous readings. `period`: seconds per training step including the idle gap, over which
  /// temperature and power oscillate.
  void update(std::span<const system::GpuReading> readings, double seconds, double period);

  /// Fraction of time the GPUs are kept idle, in [0, kMaxIdle].
  double idle_share() const { return shown_; }
  /// True while training should pause until the GPUs have cooled.
  bool paused() const { return paused_; }
  /// Cause of the idle share: "GPU 0 (0000:03:00.0) has 104 C, limit 105 C"; empty if there is none.
  const std::string& reason() const { return reason_; }

 private:
  struct Gains;
  /// Controller of one quantity (temperature or power) of a GPU.
  struct Loop {
    double advance(const Gains& gains, double over, double seconds, double period, bool paused);

    struct Sample {
      double value, age;
    };
    std::deque<Sample> recent;
    double value = 0;  ///< filtered excess over the target
    double slow = 0;   ///< excess filtered over a longer time
    double integral = 0;
    bool begun = false;
  };
  struct Gpu {
    Loop heat, power;
  };
  static const Gains kHeatGains, kPowerGains;

  double govern(size_t i, const system::GpuReading& reading, double seconds, double period);
  void decide_pause(double requested_share, double seconds, double period);
  void show(double requested_share, double seconds);

  GovernorOptions options_;
  std::vector<Gpu> gpus_;
  double shown_ = 0;
  double unwanted_seconds_ = 0;  ///< since the requested share was last above kMinShare
  bool paused_ = false;
  double seconds_at_max_share_ = 0;  ///< since the max. share last cooled the GPU
  double paused_seconds_ = 0;
  std::string reason_;
};

}  // namespace hearth::supervise
