#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "data/loader.h"
#include "engine/micro_batch.h"
#include "engine/plan.h"
#include "exec/executor.h"

namespace hearth::engine {

class PlanBuilder;
class Runtime;

/// Arguments of an update; see Engine::train_step(). The arrays of its micro-batches are in the order of
/// Plan::input_names (InputOrder).
struct Update {
  int64_t num_micro = 0;    ///< number of micro-batches, all workers together
  int64_t num_samples = 0;  ///< number of samples, all workers together
  FunctionRef<MicroBatch()> next;
  int64_t step = 0;
  double learning_rate = 0;
};

/// Divisors for the averages of an update: running statistics are averaged over num_micro micro-batches,
/// gradients over num_samples samples.
struct Divisors {
  int64_t num_micro = 0;
  double num_samples = 0;
};

/// Parallelism strategy: divides the updates of a run among workers. This base class is data parallelism,
/// which a single worker also uses (parallel/data.cpp); each derived class is in a separate file of this
/// folder. While a plan is built, a strategy has no state.
class Strategy {
 public:
  Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  /// Returns the number of workers that share the micro-batches of an update.
  virtual int64_t num_sharing(const EngineOptions& options) const { return options.num_workers; }
  /// True if no worker has the full model, so that all workers evaluate every batch together.
  virtual bool evaluates_jointly() const { return false; }
  /// True if workers communicate in every micro-batch. Then every worker runs all micro-batches of a full
  /// update's share, even if a smaller update has none for some of them (Runtime::idle_batch()).
  virtual bool exchanges_every_micro() const { return false; }
  /// True if workers may wait for each other's collectives, so that collectives on the CPU need a separate
  /// thread.
  virtual bool needs_exchange_queue() const { return false; }

  int64_t num_local_micro(const EngineOptions& options) const {
    return options.accumulate / num_sharing(options);
  }
  int64_t num_local_shards(const EngineOptions& options) const {
    return options.shards / num_sharing(options);
  }
  /// Returns which micro-batches of a full update this worker computes.
  data::LoaderShare share(const EngineOptions& options) const;

  // Functions that build the plan.
  virtual void compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const;
  /// Called for each graph before the passes run.
  virtual void begin_graph(Plan& plan, const passes::TrainGraph& train, Purpose purpose,
                           passes::PassContext& context) const;
  /// Called after the nodes that consume gradients (accumulation, update) were added to a graph, at node
  /// numbers from `first` on.
  virtual void end_graph(ir::Graph& graph, size_t first) const;
  virtual SumOptions sums(const Plan& plan) const;
  /// Adds states to the graph of an update in which checkpoints store the private states of all workers.
  virtual void add_local_states(const EngineOptions& options, ir::Graph& graph) const;
  virtual double flops_per_update(const Plan& plan) const;
  virtual std::vector<int64_t> stage_parameters(const Plan& plan) const;

  // Functions that run the plan.
  /// Allocates memory in addition to that of the programs. Called once, before the first update.
  virtual void open(Runtime& runtime);
  /// Returns the divisors of this worker's averages in an update.
  virtual Divisors divisors(const Plan& plan, const Update& update) const;
  /// Starts this worker's programs of an update and returns the last one; null if the update has no
  /// micro-batch for this worker. The programs write the loss of micro-batch i to losses[i].
  virtual exec::Executor* start(Runtime& runtime, const Update& update, float* losses);
  /// Returns the global gradient norm of an update from `norm`, the norm that this worker computed.
  virtual double global_norm(Runtime& runtime, double norm) const;
  /// Collects the losses of an update from all workers: fills `losses` on every worker.
  virtual void gather_losses(Runtime& runtime, float* losses);
  /// Sends the first micro-batch of the next update to the GPU.
  virtual void stage_ahead(Runtime& runtime, const MicroBatch& batch);
  /// Evaluates a batch and returns the sum of its losses.
  virtual double evaluate(Runtime& runtime, const MicroBatch& batch);
  /// Returns output number `index` of the graph of the last evaluation.
  virtual std::span<const float> output(size_t index) const;
  /// With local steps: makes the outer step of all workers.
  virtual void outer_step(Runtime& runtime);

 private:
  const exec::Executor* evaluated_ = nullptr;  ///< program of the last evaluation
  std::vector<float> local_losses_;
};

/// Sets the scalar inputs of a program of an update. `is_present`: false if the update is smaller than a full
/// one and lacks this micro-batch.
void set_scalars(exec::Executor& executor, const Divisors& divisors, bool is_present, double learning_rate);

std::unique_ptr<Strategy> make_data();
std::unique_ptr<Strategy> make_zero();
std::unique_ptr<Strategy> make_sharded();
std::unique_ptr<Strategy> make_pipeline();
std::unique_ptr<Strategy> make_local_sgd();

/// Returns the strategy for EngineOptions::parallel.
std::unique_ptr<Strategy> make_strategy(Parallel parallel);

}  // namespace hearth::engine
