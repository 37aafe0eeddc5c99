#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/plan.h"

namespace hearth::engine {

class Strategy;

/// Plans training and evaluation. `train_sizes`, `eval_sizes`: every micro-batch size that training and
/// evaluation use, the largest first. UserError if the model or the number of workers does not allow it.
Plan make_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes, const DeviceChecks& checks = {});
/// Measures memory without packing: Plan::arena_bytes is a lower bound, and no program can run.
Plan measure_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
                  std::span<const int64_t> eval_sizes);
/// Measures a measured plan of training with one micro-batch size again under another budget, without
/// rebuilding its graphs.
void replan(Plan& measured, const passes::OffloadOptions& offload, int64_t budget_bytes);
/// Compiles the forward and backward pass, with the weights of `plan`. Outputs: the loss and every gradient.
exec::Program compile_gradients(Plan& plan, BatchShape shape, const DeviceChecks& checks);

/// Makes the programs of a plan from graphs, for make_plan() and the strategies: runs the passes and assigns
/// memory.
class PlanBuilder {
 public:
  PlanBuilder(Plan& plan, const Strategy& strategy, const DeviceChecks& checks);

  Plan& plan() { return plan_; }
  const EngineOptions& options() const { return plan_.options; }

  /// Compiles a program for every micro-batch size and row length.
  void compile_all(Purpose purpose, std::span<const int64_t> sizes, Programs& programs);
  /// Builds the graph of the objective and runs the passes of Stage::compute over it.
  passes::TrainGraph compute(Purpose purpose, BatchShape shape,
                             std::function<void(passes::TrainGraph&)> consume_gradients);
  /// Compiles a graph that no pass has seen.
  exec::Program finish(passes::TrainGraph train, Purpose purpose);
  /// Compiles a graph from compute().
  exec::Program finish_computed(passes::TrainGraph& train, Purpose purpose);
  /// Assigns memory to a graph after all other passes, and prepares its kernels.
  exec::Program place(const passes::TrainGraph& train, Purpose purpose,
                      const std::vector<int64_t>& workspace_bytes = {});

 private:
  struct Placed {
    exec::Program program;
    passes::RecomputeResult recompute;
  };
  passes::PassContext context_of(const passes::TrainGraph& train);
  exec::Program finish_computed(passes::TrainGraph& train, Purpose purpose, passes::PassContext& context);
  void keep_computed(const passes::TrainGraph& train, Purpose purpose,
                     const passes::WorkspaceOf& workspace_of);
  Placed place_within(passes::TrainGraph train, const std::vector<int64_t>& workspace_bytes,
                      int64_t budget_bytes);

  Plan& plan_;
  const Strategy& strategy_;
  DeviceChecks checks_;
  const gpu::Driver* driver_ = nullptr;  ///< null: Backend::cpu
  std::map<std::string, int64_t> workspace_cache_;
};

}  // namespace hearth::engine
