#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/memory/recompute.h"
#include "passes/parallel/all_reduce.h"
#include "passes/parallel/compress.h"
#include "passes/parallel/shard_weights.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// Options and results of the passes.
struct PassContext {
  DType precision = DType::f32;
  /// Arena budget for the recompute pass; 0 = none.
  int64_t budget_bytes = 0;
  OffloadOptions offload;
  cost::Device device;
  WorkspaceOf workspace_of;
  /// Appends the consumers of the gradients (accumulation or the optimizer); empty for evaluation graphs.
  std::function<void(TrainGraph&)> consume_gradients;
  CompressOptions compress;
  AllReduceOptions all_reduce;
  /// With owners set, nodes keep their original order, which is the same for every worker.
  ShardOptions shard;
  /// Names of passes to skip.
  std::vector<std::string> off;
  /// Called after every pass that ran, with its name and seconds.
  std::function<void(std::string_view, const ir::Graph&, double)> after_pass;
  RecomputeResult recompute;
};

/// Stages of the pipeline: `compute` decides the ops and their order, `exchange` adds communication between
/// workers, `place` moves values within a memory budget.
enum class Stage : uint8_t { compute, exchange, place };

/// A row of the pass list: name, description and function.
struct Pass {
  std::string_view name;
  std::string_view doc;
  /// True if results depend on the pass, so that it cannot be switched off.
  bool required = false;
  Stage stage = Stage::compute;
  void (*run)(TrainGraph&, PassContext&) = nullptr;
};

/// Returns every pass in the order it runs.
std::span<const Pass> pass_list();

/// Runs the passes of a stage and verifies the graph after each. Throws UserError for an unknown or required
/// name in `off`.
void run_passes(TrainGraph& train, PassContext& context, Stage stage);

}  // namespace hearth::passes
