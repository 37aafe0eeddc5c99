#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "system/gpu_reading.h"

namespace hearth::supervise {

/// Temperature of the sensor that exceeds its limit the most. The limit of the junction sensor (edge, if
/// there is no junction) is the configured limit; if that is 0, and for the other sensors, it is the GPU's
/// own limit minus Governor::kMargin.
struct Excess {
  double kelvin = 0;
  double celsius = 0, limit = 0;  ///< temperature of that sensor and its limit, in Celsius
  const char* sensor = "";
};
/// Returns the excess for the sensor that exceeds its limit the most, which may be negative; nothing if no
/// temperature or no limit is known. `limit`: configured limit in Celsius, or 0.
std::optional<Excess> excess_of(const system::GpuReading& reading, double limit);

/// Limits that the Governor enforces.
struct GovernorOptions {
  /// Limit of the junction (or edge) temperature in Celsius; 0: the GPU's own limit minus Governor::kMargin.
  double limit = 0;
  double power_limit = 0;  ///< limit of each GPU's power in watts, averaged over some seconds; 0: none
  /// Time for which idling with the max share does not cool the GPU, before a pause starts.
  double pause_after_seconds = 3;
  double min_pause_seconds = 120;
};

/// Keeps GPUs below limits of temperature and power by keeping them idle for a share of the time, before they
/// throttle or the machine shuts down. If even the max share is not enough, requests a pause of training.
/// Each GPU has one proportional-integral controller for temperature and one for power; the largest share
/// that any of them requests is used. Deterministic: the same readings give the same shares.
class Governor {
 public:
  static constexpr double kMargin =
      5;  ///< difference between the GPU's own limit and the default limit, in K
  static constexpr double kMaxIdle = 0.8;     ///< max fraction of time that GPUs are kept idle
  static constexpr double kResumeBelow = 15;  ///< distance below the limit at which a pause ends, in K

  explicit Governor(GovernorOptions options) : options_(options) {}

  /// Updates the controllers with one reading per GPU; always for the same GPUs in the same order. `seconds`:
  /// time since the previous readings. `period`: seconds per training step including the idle time, the
  /// period with which temperature and power oscillate.
  void update(std::span<const system::GpuReading> readings, double seconds, double period);

  /// Returns the fraction of time for which the GPUs are to be kept idle, in [0, kMaxIdle].
  double idle_share() const { return shown_; }
  /// True while training should pause until the GPUs have cooled.
  bool paused() const { return paused_; }
  /// Describes the cause of the idle share: "GPU 0 (0000:03:00.0) has 104 C, limit 105 C"; empty if the share
  /// is 0.
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
    double value = 0;  ///< filtered difference between measured excess and target
    double slow = 0;   ///< `value`, filtered over a longer time, to compute its slope
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
  double unwanted_seconds_ = 0;  ///< time since the requested share was last above kMinShare
  bool paused_ = false;
  double seconds_at_max_share_ = 0;  ///< time for which the max share has not cooled the GPU
  double paused_seconds_ = 0;
  std::string reason_;
};

}  // namespace hearth::supervise
