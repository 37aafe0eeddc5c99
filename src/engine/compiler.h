#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/compiled.h"

namespace hearth::engine {

class Strategy;

/// Grows graphs, runs the passes over them and places them, for compile() and the strategies: what it finds
/// out goes to `compiled`.
class Compiler {
 public:
  Compiler(Compiled& compiled, const Strategy& strategy, const DeviceTrials& trials)
      : compiled(compiled), strategy_(strategy), trials_(trials) {
    if (options().backend == exec::Backend::gpu) driver_ = &exec::driver_of(options().gpu.device);
  }

  Compiled& compiled;
  const EngineOptions& options() const { return compiled.options; }

  /// A program of every size and row length.
  void compile_all(Purpose purpose, std::span<const int64_t> sizes, Programs& programs);
  /// The graph of the objective, which no pass has seen.
  passes::TrainGraph build_graph(Purpose purpose, BatchShape shape);
  /// The same after the passes of Stage::compute.
  passes::TrainGraph compute(Purpose purpose, BatchShape shape,
                             std::function<void(passes::TrainGraph&)> consume_gradients);
  exec::Program finish(passes::TrainGraph train, Purpose purpose);
  /// Of a graph that compute() made.
  exec::Program finish_computed(passes::TrainGraph& train, Purpose purpose);
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

  const Strategy& strategy_;
  DeviceTrials trials_;
  const gpu::Driver* driver_ = nullptr;  ///< of Backend::gpu
  std::map<std::string, int64_t> workspace_cache_;
};

}  // namespace hearth::engine
