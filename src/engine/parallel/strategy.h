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
struct Runtime;

/// One update, as it is given to an engine.
struct Update {
  int64_t num_micro = 0;    ///< micro-batches, by all workers
  int64_t num_samples = 0;  ///< of all of them
  FunctionRef<MicroBatch()> next;
  int64_t step = 0;
  double learning_rate = 0;
};

/// What gradients are means over, when they are summed.
struct Part {
  int64_t num_micro = 0;
  double num_samples = 0;
};

/// How several workers divide the updates of a run. Its own functions are those of data parallelism, and of
/// a single worker (parallel/data.cpp): each file beside it overrides what it does otherwise. While compiling
/// a strategy has no state.
class Strategy {
 public:
  Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  virtual ~Strategy() = default;

  /// Workers that share the micro-batches of an update.
  virtual int64_t num_sharing(const EngineOptions& options) const { return options.num_workers; }
  /// Whether no worker has the whole model: all of them evaluate the same batches, in step.
  virtual bool evaluates_jointly() const { return false; }
  /// Whether workers meet in every micro-batch, those that an update does not have included.
  virtual bool meets_in_every_micro() const { return false; }
  /// Whether sums of workers may wait for one another in turns, so that the processor needs a queue for them.
  virtual bool waits_in_turns() const { return false; }

  int64_t num_own_micro(const EngineOptions& options) const {
    return options.accumulate / num_sharing(options);
  }
  int64_t num_own_shards(const EngineOptions& options) const { return options.shards / num_sharing(options); }
  /// The micro-batches of a whole update that are this worker's.
  data::LoaderShare share(const EngineOptions& options) const;

  // Compiling.
  virtual void compile(PlanBuilder& builder, std::span<const int64_t> train_sizes,
                       std::span<const int64_t> eval_sizes) const;
  /// Before the passes see a graph.
  virtual void begin_graph(Plan& plan, const passes::TrainGraph& train, Purpose purpose,
                           passes::PassContext& context) const;
  /// After what consumes gradients, whose nodes begin at number `first`.
  virtual void end_graph(ir::Graph& graph, size_t first) const;
  virtual SumOptions sums(const Plan& plan) const;
  /// Adds what a checkpoint holds of each worker to a graph of an update.
  virtual void add_own_places(const EngineOptions& options, ir::Graph& graph) const;
  virtual double flops_per_update(const Plan& plan) const;
  virtual std::vector<int64_t> stage_parameters(const Plan& plan) const;

  // Running.
  /// Makes room for what it keeps beside the programs, once these are bound.
  virtual void open(Runtime& runtime);
  /// What this worker's sums of an update are means over.
  virtual Part part_of(const Runtime& runtime, const Update& update) const;
  /// Starts this worker's programs of an update and returns the last; null where it has none to start. Each
  /// loss is read to its place in `losses`.
  virtual exec::Executor* start(Runtime& runtime, const Update& update, float* losses);
  /// The norm of an update's gradients, of what this worker measured.
  virtual double norm_of_all(Runtime& runtime, double norm) const;
  /// Brings every worker all losses of an update.
  virtual void gather_losses(Runtime& runtime, float* losses);
  /// Sends a GPU the micro-batch that the next update begins with.
  virtual void stage_ahead(Runtime& runtime, const MicroBatch& batch);
  /// The sum of a batch's losses, and output number `place` of its graph.
  virtual double evaluate(Runtime& runtime, const MicroBatch& batch);
  virtual std::span<const float> output(const Runtime& runtime, size_t place) const;
  /// With local steps: the step that all workers make together.
  virtual void move_together(Runtime& runtime);
};

std::unique_ptr<Strategy> make_data();
std::unique_ptr<Strategy> make_zero();
std::unique_ptr<Strategy> make_sharded();
std::unique_ptr<Strategy> make_pipeline();
std::unique_ptr<Strategy> make_local_sgd();

/// Every strategy, by the name in EngineOptions.
std::unique_ptr<Strategy> make_strategy(Parallel parallel);

}  // namespace hearth::engine
