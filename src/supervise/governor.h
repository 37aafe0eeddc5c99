#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "system/gpu_reading.h"

namespace hearth::supervise {

/// How far a GPU's hottest place is above its limit, in K: the junction (or edge) above `limit` or, where
/// that is 0, above Governor::kMargin under the GPU's own; memory and edge above theirs. Nothing where no
/// temperature or no limit is known.
struct Excess {
  double kelvin = 0;
  double celsius = 0, limit = 0;  ///< of the place
  const char* place = "";
};
std::optional<Excess> excess_of(const system::GpuReading& reading, double limit);

struct GovernorOptions {
  double limit = 0;        ///< Celsius of the junction (or edge); 0: Governor::kMargin under the GPU's own
  double power_limit = 0;  ///< Watts of each GPU, as a mean over some seconds; 0: none
  double pause_after_seconds = 3;  ///< in which the largest share does not cool
  double least_pause_seconds = 120;
};

/// Keeps GPUs below a temperature and a power by a share of the time in which they do nothing, before they
/// slow themselves or the machine turns off; where even the largest share is too little it asks for a pause.
/// For each GPU there is a proportional-integral controller, and the largest wish counts. The same readings
/// make the same shares.
class Governor {
 public:
  static constexpr double kMargin = 5;        ///< K under a GPU's own limit
  static constexpr double kMostIdle = 0.8;    ///< the largest share
  static constexpr double kResumeBelow = 15;  ///< K under the limit, where a pause ends

  explicit Governor(GovernorOptions options) : options_(options) {}

  /// Readings that are `seconds` newer than those before, one for each GPU and always of the same ones. What
  /// a GPU takes and has goes up and down with each step, `period` seconds with its gap.
  void update(std::span<const system::GpuReading> readings, double seconds, double period);

  /// Of all time, from 0 to kMostIdle.
  double idle_share() const { return shown_; }
  bool paused() const { return paused_; }
  /// Why it slows: "GPU 0 (0000:03:00.0) has 104 C, limit 105 C"; else empty.
  const std::string& reason() const { return reason_; }

 private:
  struct Law;
  /// The control of one of a GPU's quantities.
  struct Loop {
    double advance(const Law& law, double over, double seconds, double period, bool paused);

    struct Sample {
      double value, age;
    };
    std::deque<Sample> recent;
    double value = 0;  ///< filtered, above its target
    double slow = 0;   ///< its mean over a longer time
    double integral = 0;
    bool begun = false;
  };
  struct Gpu {
    Loop heat, power;
  };
  static const Law kHeatLaw, kPowerLaw;

  double govern(size_t i, const system::GpuReading& reading, double seconds, double period);
  void decide_pause(double wish, double seconds, double period);
  void show(double wish, double seconds);

  GovernorOptions options_;
  std::vector<Gpu> gpus_;
  double shown_ = 0;
  double unwanted_seconds_ = 0;  ///< since the share was wanted
  bool paused_ = false;
  double at_most_seconds_ = 0;  ///< since the largest share does not cool
  double paused_seconds_ = 0;
  std::string reason_;
};

}  // namespace hearth::supervise
