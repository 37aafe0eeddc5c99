#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/threads.h"
#include "distributed/heartbeat.h"
#include "distributed/process_group.h"
#include "engine/memory.h"
#include "engine/plan.h"
#include "engine/program_inputs.h"
#include "exec/executor.h"
#include "exec/host_queue.h"

namespace hearth::engine {

/// A plan at run time: its memory, the executors of its programs, and the connection to other workers.
/// Strategies run the programs of an update through it.
class Runtime {
 public:
  /// Builds the plan and allocates its memory; see Engine.
  Runtime(const EngineOptions& options, std::span<const int64_t> train_sizes,
          std::span<const int64_t> eval_sizes);

  Plan& plan() { return *plan_; }
  const Plan& plan() const { return *plan_; }
  Memory& memory() { return *memory_; }
  ThreadPool& threads() { return threads_; }
  /// Returns self-test and autotuning of the device; null pointers on the CPU.
  DeviceChecks checks() const { return {.kernels = self_test_.get(), .matmuls = matmul_choice_.get()}; }

  /// Returns the executor of a program of the plan.
  exec::Executor& executor(const exec::Program& program) { return executors_.at(&program); }
  /// Returns a micro-batch with its arrays in the order of Plan::input_names; see InputOrder.
  MicroBatch sorted(const MicroBatch& batch) { return input_order_->sorted(batch); }
  /// Returns the inputs of a program, for binding a micro-batch from sorted(). `micro`: index of the
  /// micro-batch if the program computes several (Parallel::pipeline).
  ProgramInputs& inputs(const exec::Program& program, std::optional<int64_t> micro = {});
  /// Starts a program of an update. A GPU may finish it after this call returns.
  void start(exec::Executor& executor) { executor.start(threads_); }
  /// Uploads weights that the host has changed, and runs a program to its end.
  void run(exec::Executor& executor);
  /// Returns a micro-batch of zeros, in the order of sorted(), for micro-batches that a smaller update lacks.
  /// Requires EngineOptions::shards > 1.
  const MicroBatch& idle_batch() const { return idle_batch_; }
  /// Returns host memory for `count` values that are read after an update, page-locked if there is a GPU.
  float* readings(size_t count);

  /// Connects to the other workers of a run. `needs_exchange_queue`: true if collectives on the CPU must run
  /// on a separate thread.
  void join(distributed::ProcessGroup& group, bool needs_exchange_queue);
  /// Returns the process group; null if this is the only worker.
  distributed::ProcessGroup* group() const { return group_; }
  /// Returns the time of exchanges with other workers since the last call: the seconds since `start`, plus
  /// the seconds that collectives on the CPU took.
  double exchange_seconds(std::chrono::steady_clock::time_point start);
  /// Sends worker 0 the states that only other workers have.
  void gather_states();
  /// Copies the states of this worker from where a checkpoint stores them to where this worker uses them.
  void restore_local_states();

  const distributed::Heartbeat& heartbeat() const { return heartbeat_; }
  void set_heartbeat(const distributed::Heartbeat& heartbeat);
  void beat() { heartbeat_.beat(); }

 private:
  /// A state that worker 0 does not have.
  struct RemoteState {
    const exec::PersistentBuffer* buffer;  ///< buffer for its copy on worker 0
    int owner;
    const exec::PersistentBuffer* source;  ///< buffer of the original on the owner
  };
  void make_idle_batch();
  void expect_recordings() const;
  const std::vector<RemoteState>& remote_states();

  ThreadPool threads_;
  std::unique_ptr<exec::SelfTest> self_test_;
  std::unique_ptr<exec::MatmulChoice> matmul_choice_;
  std::shared_ptr<Plan> plan_;
  std::unique_ptr<Memory> memory_;
  std::map<const exec::Program*, exec::Executor> executors_;
  std::optional<InputOrder> input_order_;
  std::map<std::pair<const exec::Program*, std::optional<int64_t>>, ProgramInputs> inputs_;
  exec::Region zeros_;
  MicroBatch idle_batch_;
  std::vector<float> host_readings_;
  std::unique_ptr<gpu::HostMemory> pinned_readings_;
  distributed::Heartbeat heartbeat_;

  distributed::ProcessGroup* group_ = nullptr;
  /// Runs collectives; null: they run on the calling thread.
  std::unique_ptr<exec::HostQueue> exchange_queue_;
  double counted_seconds_ = 0;  ///< seconds of collectives that exchange_seconds() has counted so far
  std::optional<std::vector<RemoteState>> remote_states_;
};

}  // namespace hearth::engine
