#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "supervise/governor.h"
#include "supervise/gpu_board.h"
#include "system/sampler.h"

namespace hearth::supervise {

/// Reads the sensors of the GPUs that workers name on a board, governs these GPUs, and puts both on the
/// board. Nothing of it waits.
class GpuWatch {
 public:
  /// `say` takes sentences for people.
  GpuWatch(system::SamplerOptions sensors, GovernorOptions limits,
           std::function<void(const std::string&)> say);

  const GpuBoard& board() const { return board_; }
  /// To be called several times a second, for the `num_workers` that are to name GPUs.
  void look(int num_workers);

 private:
  using Clock = std::chrono::steady_clock;
  void take_sample();
  void let_go();
  void say_share();
  void publish();

  GpuBoard board_;
  system::Sampler sampler_;
  GovernorOptions limits_;
  Governor governor_;
  std::function<void(const std::string&)> say_;
  std::vector<std::string> gpus_;
  bool blind_ = false;  ///< no sensor of these GPUs says anything
  int64_t num_samples_ = 0;
  Clock::time_point sampled_;
  bool slows_ = false;  ///< as was said
  Clock::time_point said_;
};

}  // namespace hearth::supervise
