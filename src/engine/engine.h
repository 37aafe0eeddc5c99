#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "base/threads.h"
#include "data/loader.h"
#include "distributed/heartbeat.h"
#include "distributed/process_group.h"
#include "engine/memory.h"
#include "engine/micro_batch.h"
#include "engine/plan.h"

namespace hearth::exec {
class Executor;
}

namespace hearth::engine {

class Runtime;
class Strategy;

/// Result of one update.
struct StepResult {
  double loss = 0;  ///< mean over samples
  double grad_norm = 0;
  int64_t num_samples = 0;
  double exchange_seconds = 0;  ///< time that this worker's host waited for exchanges with other workers
  bool skipped = false;         ///< true if the gradients were not finite: no weight or state was changed
};

/// The device of an engine, and the results of its checks.
struct DeviceReport {
  const gpu::DeviceInfo* gpu = nullptr;  ///< null: the CPU
  /// Kernels that failed their self-test, with a description of the fault. The default implementation or the
  /// host computes instead.
  const std::map<std::string, std::string>& failed_kernels;
  /// Sentences on matmul implementations that are not used, because they failed or gave another result.
  std::span<const std::string> rejected_matmuls;
  /// Reason why steps are not recorded; empty if they are.
  std::string_view recording_fault;
};

/// Trains and evaluates a model: makes the plan of the options and runs it. All memory is allocated when an
/// engine is made, nothing while it runs. Its strategy (parallel/strategy.h) decides this worker's share of
/// an update.
class Engine {
 public:
  /// The sizes are those of make_plan(). DoesNotFit if the GPU has too little free memory.
  Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
         std::span<const int64_t> eval_sizes);
  ~Engine();

  const Plan& plan() const;
  DeviceReport device() const;
  ThreadPool& threads();

  /// Makes this engine worker `group.rank()` of a run of num_workers: it computes its share of the
  /// micro-batches, and every worker makes the same update. Before the first step; the group must outlive the
  /// engine.
  void join(distributed::ProcessGroup& group);
  /// Returns this engine's share of the micro-batches of a full update.
  data::LoaderShare share() const;
  /// Sets the heartbeat that beats after every micro-batch.
  void set_heartbeat(const distributed::Heartbeat& heartbeat);
  const distributed::Heartbeat& heartbeat() const;

  /// Draws the initial weights from the seed, except frozen ones, which load_model reads.
  void initialize();
  /// Makes one update from `num_micro` micro-batches of all workers. `next` returns those of this engine's
  /// share, one per call. The gradient is that of the sum of their losses over `num_samples`. `step` is the
  /// number of the update for dropout. CommError if another worker does not respond.
  StepResult train_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
    start_step(num_micro, num_samples, next, step, learning_rate);
    return finish_step();
  }
  /// Starts an update, which a GPU may compute until finish_step().
  void start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                  double learning_rate);
  StepResult finish_step();
  /// Sends the first micro-batch of the next update to a GPU while it computes.
  void stage_ahead(const MicroBatch& batch);
  /// With local steps: makes the outer step of all workers.
  void outer_step();

  /// Returns the sum of a batch's losses under the weights (or their EMA, if there is one); 0 without losses.
  double evaluate(const MicroBatch& batch);
  /// Returns the objective's output number `index` for the last evaluated batch.
  std::span<const float> output(size_t index) const;
  /// Returns an output of dtype i32.
  std::span<const int32_t> int_output(size_t index) const;

  /// Sends worker 0 the states that only other workers have. Every worker calls it, between steps.
  void gather_states();
  /// Takes this worker's states from a loaded checkpoint.
  void restore_local_states();
  /// Returns everything that training changes: trained weights and the state of the run, without frozen
  /// weights, the same layout for any number of workers. States of other workers are those of the last
  /// gather_states().
  std::span<std::byte> state() const;
  std::byte* data(const exec::PersistentBuffer& buffer) const;

 private:
  friend class Inspector;
  friend double loss_scale(const Engine& engine);

  /// The update between start_step() and finish_step().
  struct Started {
    exec::Executor* last = nullptr;  ///< null: this worker runs no program
    int64_t num_micro = 0;
    int64_t num_samples = 0;
  };

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Strategy> strategy_;
  Started started_;
};

/// Returns the f32 values of a persistent buffer.
std::span<float> values(const Engine& engine, const std::string& name);
/// Returns the loss scale of fp16; otherwise 1.
double loss_scale(const Engine& engine);
/// Copies a weight to the states that begin with its value: its EMA, and its anchor of local steps.
void copy_to_states(Engine& engine, const std::string& weight);

/// Makes an engine that only evaluates micro-batches of these sizes. It accumulates no gradients and keeps no
/// EMA weights, because saved weights are the averages already.
std::unique_ptr<Engine> evaluation_engine(EngineOptions options, std::span<const int64_t> eval_sizes);

}  // namespace hearth::engine
