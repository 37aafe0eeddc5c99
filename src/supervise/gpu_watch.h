#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "supervise/governor.h"
#include "supervise/gpu_board.h"
#include "system/sampler.h"

namespace hearth::supervise {

/// Reads the sensors of the GPUs that workers have registered on a GpuBoard, runs the governor, and publishes
/// readings and decision on the board. Never blocks.
class GpuWatch {
 public:
  /// `say`: receives messages for the user.
  GpuWatch(system::SamplerOptions sensors, GovernorOptions limits,
           std::function<void(const std::string&)> say);

  const GpuBoard& board() const { return board_; }
  /// Takes new readings, if there are any, and acts on them. Call this several times a second. `num_workers`:
  /// number of workers that register GPUs.
  void look(int num_workers);

 private:
  using Clock = std::chrono::steady_clock;
  void take_sample();
  void reset_governor();
  void report_share();
  void publish();

  GpuBoard board_;
  system::Sampler sampler_;
  GovernorOptions limits_;
  Governor governor_;
  std::function<void(const std::string&)> say_;
  std::vector<std::string> gpus_;
  bool has_no_readings_ = false;  ///< true if none of these GPUs reports sensor values
  int64_t num_samples_ = 0;
  Clock::time_point sampled_;
  bool is_slowing_ = false;  ///< true if the last message to the user said that training is slowed down
  Clock::time_point said_;
};

}  // namespace hearth::supervise
