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
/// evaluation use, the largest first. Throws a UserError if the model does not support the options, for
/// example if it has fewer weights than workers.
Plan make_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
               std::span<const int64_t> eval_sizes, const DeviceChecks& checks = {});
/// Builds a plan only to measure its memory, without packing the arena: Plan::arena_bytes is a lower bound,
/// and no program can run.
Plan measure_plan(const EngineOptions& options, std::span<const int64_t> train_sizes,
                  std::span<const int64_t> eval_sizes);
/// Changes a plan of measure_plan() to another offload choice and arena budget and measures it again, without
/// rebuilding its graphs. The plan must have one micro-batch size and no evaluation.
void replan(Plan& measured, const passes::OffloadOptions& offload, int64_t budget_bytes);
/// Compiles the forward and backward pass, with the weights of `plan`. Outputs: the loss and every gradient.
exec::Program compile_gradients(Plan& plan, BatchShape shape, const DeviceChecks& checks);

/// Compiles graphs to the programs of a plan, for make_plan() and the strategies: runs the passes and assigns
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
  /// Runs all passes over a graph and compiles it.
  exec::Program finish(passes::TrainGraph train, Purpose purpose);
  /// Runs the remaining passes over a graph from compute() and compiles it.
  exec::Program finish_computed(passes::TrainGraph& train, Purpose purpose);
  /// Runs the memory passes (Stage::place) over a graph, assigns memory to its values, and compiles it.
  exec::Program place(const passes::TrainGraph& train, Purpose purpose,
                      const std::vector<int64_t>& workspace_bytes = {});

 private:
  struct Placed {
    exec::Program program;
    passes::EncodeResult encoded;
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
  const gpu::Driver* driver_ = nullptr;  ///< driver of the GPU; null: Backend::cpu
  std::map<std::string, int64_t> workspace_cache_;
};

}  // namespace hearth::engine
