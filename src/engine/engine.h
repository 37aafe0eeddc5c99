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
  double exchange_seconds = 0;  ///< seconds that this worker's CPU waited for exchanges with other workers
  bool skipped = false;         ///< true if the gradients were not finite: no weight or state was changed
};

/// The device of an engine, and the results of its checks.
struct DeviceReport {
  const gpu::DeviceInfo* gpu = nullptr;  ///< GPU of the engine; null: the CPU
  /// Kernels that failed their self-test, by name, with a description of the fault. The default
  /// implementation or the CPU computes their results instead.
  const std::map<std::string, std::string>& failed_kernels;
  /// A sentence about each matmul implementation that is not used, because it failed or its result differed
  /// from the default implementation's.
  std::span<const std::string> rejected_matmuls;
  /// Sentences about cached matmul implementations that were measured again.
  std::span<const std::string> replaced_matmuls;
  /// Reason why steps are not recorded as a GPU graph and replayed; empty if they are.
  std::string_view recording_fault;
};

/// Trains and evaluates a model: builds a plan from the options and runs it. The constructor allocates all
/// memory; steps allocate none. With several workers, a strategy (parallel/strategy.h) decides which part of
/// an update this worker computes.
class Engine {
 public:
  /// `train_sizes`, `eval_sizes`: as for make_plan(). Throws DoesNotFit if the GPU has too little free
  /// memory.
  Engine(const EngineOptions& options, std::span<const int64_t> train_sizes,
         std::span<const int64_t> eval_sizes);
  ~Engine();

  const Plan& plan() const;
  DeviceReport device() const;
  ThreadPool& threads();

  /// Connects this engine as worker `group.rank()` to the other workers of its run: it then computes its
  /// share of the micro-batches, and every worker makes the same update. Call before the first step. The
  /// group must outlive the engine.
  void join(distributed::ProcessGroup& group);
  /// Returns which micro-batches of a full update this engine computes.
  data::LoaderShare share() const;
  /// Sets the heartbeat that is sent after every micro-batch.
  void set_heartbeat(const distributed::Heartbeat& heartbeat);
  const distributed::Heartbeat& heartbeat() const;

  /// Draws the initial weights from the seed, except frozen ones, which load_model reads.
  void initialize();
  /// Makes one update from `num_micro` micro-batches, those of all workers together. `next` returns the next
  /// micro-batch of this engine's share. The gradient is that of the sum of all losses, divided by
  /// `num_samples`. `step`: number of the update, which seeds dropout. Throws a CommError if another worker
  /// does not respond.
  StepResult train_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                        double learning_rate) {
    start_step(num_micro, num_samples, next, step, learning_rate);
    return finish_step();
  }
  /// Starts an update; see train_step(). A GPU may still compute it after this call returns; finish_step()
  /// waits for it.
  void start_step(int64_t num_micro, int64_t num_samples, FunctionRef<MicroBatch()> next, int64_t step,
                  double learning_rate);
  StepResult finish_step();
  /// Sends the first micro-batch of the next update to the GPU while the GPU still computes this update.
  void stage_ahead(const MicroBatch& batch);
  /// With local steps (local_steps.h): makes the outer step of all workers.
  void outer_step();
  /// Sets the masks of the pruned weights so that they prune the fraction `sparsity`; for RigL, first
  /// `dropped`, then weights grow again. All workers call it between the same updates, with equal weights.
  void prune(double sparsity, double dropped);

  /// Evaluates a batch with the weights (or their EMA, if there is one) and returns the sum of its losses; 0
  /// if the objective has no losses.
  double evaluate(const MicroBatch& batch);
  /// Returns the objective's output number `index` for the last evaluated batch.
  std::span<const float> output(size_t index) const;
  /// Returns output number `index`, of dtype i32, for the last evaluated batch.
  std::span<const int32_t> int_output(size_t index) const;

  /// Sends the states that only other workers have to worker 0. Collective call, between steps.
  void gather_states();
  /// Copies this worker's states from a loaded checkpoint to where training uses them.
  void restore_local_states();
  /// Returns the memory of everything that training changes, without frozen weights: trained weights, running
  /// statistics and optimizer states. The layout is the same for any number of workers. The states of other
  /// workers are as of the last gather_states().
  std::span<std::byte> state() const;
  std::byte* data(const exec::PersistentBuffer& buffer) const;

 private:
  friend class Inspector;
  friend double loss_scale(const Engine& engine);

  /// State of an update that start_step() has started and finish_step() has not finished yet.
  struct Started {
    exec::Executor* last = nullptr;  ///< last program of the update; null: this worker runs no program
    int64_t num_micro = 0;
    int64_t num_samples = 0;
  };

  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Strategy> strategy_;
  Started started_;
};

/// Returns the f32 values of the weight or state `name`.
std::span<float> values(const Engine& engine, const std::string& name);
/// Returns the loss scale of fp16; otherwise 1.
double loss_scale(const Engine& engine);
/// Number of elements and of pruned elements of a weight.
struct LayerSparsity {
  std::string name;
  int64_t num_weights = 0;
  int64_t num_pruned = 0;

  double fraction() const { return static_cast<double>(num_pruned) / static_cast<double>(num_weights); }
};
/// Returns the sparsity of each pruned weight (Plan::pruned).
std::vector<LayerSparsity> layer_sparsity(const Engine& engine);
/// Copies a weight to the states whose initial value is the weight: its EMA, and its anchor for local steps.
void copy_to_states(Engine& engine, const std::string& weight);

/// Creates an engine that only evaluates micro-batches of these sizes. It stores no gradients and no EMA
/// weights, because a run saves the EMA as its weights.
std::unique_ptr<Engine> evaluation_engine(EngineOptions options, std::span<const int64_t> eval_sizes);

}  // namespace hearth::engine
