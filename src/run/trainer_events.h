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
  std::string gpus;  ///< GPU sensor readings as short text; empty: none
};

/// Callbacks and shared data that connect a trainer to its process.
struct TrainerEvents {
  /// Called every train.log_every updates.
  std::function<void(const Progress&)> progress = [](const Progress&) {};
  /// Called with a sentence for users; rare.
  std::function<void(const std::string&)> message = [](const std::string&) {};
  /// Stop request (Ctrl-C): if true, the run ends after the current update with a checkpoint. Only the
  /// leader's flag has an effect. null: never stops.
  const std::atomic<bool>* stop = nullptr;
  distributed::Heartbeat heartbeat;  ///< heartbeat that is sent after every micro-batch
  /// Storage for checkpoints in memory, from which a new worker resumes after a crash; null: none. Must
  /// outlive the trainer.
  const io::CheckpointMemory* memory = nullptr;
  /// Sensor readings and requested idle time of the GPUs, from the supervisor; null: no supervisor.
  const supervise::GpuBoard* gpus = nullptr;
  /// Called with a warning about this worker's device.
  std::function<void(const std::string&)> warning = [](const std::string&) {};
};

}  // namespace hearth::run
