#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "distributed/heartbeat.h"
#include "io/checkpoint_memory.h"
#include "supervise/gpu_board.h"

namespace hearth::run {

/// Progress of a run after an update.
struct Progress {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;
  double learning_rate = 0;
  double grad_norm = 0;
  double samples_per_second = 0;
  const char* unit = "";  ///< name of a sample, such as "img"
  double tflops = 0;
  int64_t memory_bytes = 0;  ///< memory that training uses on its device
  int64_t device_bytes = 0;  ///< total memory of the device
  double mfu = 0;            ///< model FLOPS utilization, in [0, 1]; 0: unknown
  double eta_seconds = 0;
  std::string gpus;  ///< short sensor readings; empty: none
};

/// Callbacks and shared data that connect a trainer to its process.
struct TrainerEvents {
  std::function<void(const Progress&)> progress = [](const Progress&) {};       ///< every log_every updates
  std::function<void(const std::string&)> message = [](const std::string&) {};  ///< rare, one sentence
  /// Set by the caller (Ctrl-C): the trainer ends after the next update with a checkpoint. Of a group, the
  /// leader's counts.
  const std::atomic<bool>* stop = nullptr;
  distributed::Heartbeat heartbeat;  ///< beats with every micro-batch
  /// Checkpoints between those on the disk, for whoever continues where this process fails; null: none. It
  /// outlives the trainer.
  const io::CheckpointMemory* memory = nullptr;
  const supervise::GpuBoard* gpus = nullptr;  ///< how they are, and whether to rest; null: nobody says
  std::function<void(const std::string&)> warning = [](const std::string&) {};  ///< of this worker's device
};

}  // namespace hearth::run
