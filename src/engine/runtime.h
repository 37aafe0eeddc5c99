#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "distributed/heartbeat.h"
#include "distributed/process_group.h"
#include "engine/memory.h"
#include "engine/micro_batch.h"
#include "engine/parallel/strategy.h"
#include "engine/plan.h"
#include "exec/executor.h"
#include "exec/host_queue.h"

namespace hearth::engine {

/// Positions in the outputs of a graph: in training the optimizer (or the list of gradients) comes second, in
/// evaluation what the objective hands out.
enum Output : size_t { kLossSum = 0, kFirstOther = 1 };

/// What is read of a step: queued with its work, and waited for once.
enum Reading : size_t { kScale, kSumSquares, kFirstLoss };

float scalar_output(const exec::Executor& executor, size_t position);
/// `is_present`: whether the update has the micro-batch.
void set_scalars(exec::Executor& executor, const Part& part, bool is_present, double learning_rate);

/// The inside of an engine, which its strategy works on.
struct Runtime {
  Runtime(const EngineOptions& options, std::span<const int64_t> train_sizes,
          std::span<const int64_t> eval_sizes);

  void join(distributed::ProcessGroup& group);
  void bind_inputs(exec::Executor& executor, const MicroBatch& batch, int64_t step, int64_t index);
  /// Of one of the programs of the plan.
  exec::Executor& executor(const exec::Program& program) { return executors.at(&program); }
  void run(exec::Executor& executor);
  /// After the micro-batches of this worker's shard `number`, which is not its last.
  void finish_shard(int64_t number);
  /// Room for the readings of a step; page-locked, on a GPU.
  float* readings();
  /// The seconds since `start`, with those that the processor's exchanges were waited for since the last
  /// time.
  double waited_since(std::chrono::steady_clock::time_point start);
  void gather_states();
  void take_own_states();
  DeviceChecks checks() const { return {.kernels = self_test.get(), .matmuls = matmul_choice.get()}; }

  ThreadPool threads;
  std::unique_ptr<exec::SelfTest> self_test;
  std::unique_ptr<exec::MatmulChoice> matmul_choice;
  std::unique_ptr<Memory> memory;
  std::shared_ptr<Plan> plan;
  std::map<const exec::Program*, exec::Executor> executors;
  std::unique_ptr<Strategy> strategy;
  /// So many counters for each micro-batch whose dropout is drawn at once.
  static constexpr int64_t kCounterSize = 16;
  std::vector<int64_t> counter = std::vector<int64_t>(kCounterSize, 0);
  /// Zeros that stand in for a micro-batch which an update does not have.
  exec::Region zeros;
  MicroBatch idle_batch;
  std::vector<float> host_readings;
  std::unique_ptr<gpu::HostMemory> pinned_readings;
  /// The update that was started: its last executor, micro-batches and samples.
  struct Started {
    exec::Executor* last = nullptr;
    int64_t num_micro = 0;
    int64_t num_samples = 0;
  };
  Started started;
  const exec::Executor* evaluated = nullptr;  ///< the last one
  distributed::Heartbeat heartbeat;

  distributed::ProcessGroup* group = nullptr;
  std::unique_ptr<exec::HostQueue> exchange_queue;  ///< on the processor, if at all
  double waited_seconds = 0;                        ///< of it, before this update
  std::vector<float> own_losses;
  /// A state that worker 0 does not have.
  struct Away {
    const exec::PersistentBuffer* buffer;  ///< where worker 0 keeps it
    int owner;
    const exec::PersistentBuffer* source;  ///< where the owner has it
  };
  std::optional<std::vector<Away>> away;  ///< once it was found out

 private:
  void make_idle_batch();
  void expect_recordings() const;
  void find_away();
};

}  // namespace hearth::engine
