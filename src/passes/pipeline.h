#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/memory/encode_saved.h"
#include "passes/memory/recompute.h"
#include "passes/parallel/all_reduce.h"
#include "passes/parallel/compress.h"
#include "passes/parallel/shard_weights.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// Inputs of the passes, and the results of encode_saved() and recompute().
struct PassContext {
  DType precision = DType::f32;
  /// Max bytes of the arena, for the recompute pass; 0: no limit.
  int64_t budget_bytes = 0;
  OffloadOptions offload;
  cost::Device device;
  /// True if the graph will be cut into pipeline stages. No gradient is then stored in two dtypes, so that
  /// only one value crosses each cut.
  bool cuts_stages = false;
  WorkspaceOf workspace_of;
  /// Appends the nodes that use the gradients (accumulation or the optimizer). Empty for evaluation graphs.
  std::function<void(TrainGraph&)> consume_gradients;
  CompressOptions compress;
  AllReduceOptions all_reduce;
  /// If shard.owners is set, nodes keep their original order, because it must be the same on every worker.
  ShardOptions shard;
  /// Names of the passes that are skipped.
  std::vector<std::string> off;
  /// Called after every pass with the pass's name, the graph and the seconds that the pass took.
  std::function<void(std::string_view, const ir::Graph&, double)> after_pass;
  EncodeResult encoded;
  RecomputeResult recompute;
};

/// Stages of the pipeline: `compute` decides the ops and their order, `exchange` adds communication between
/// workers, `place` moves values within a memory budget.
enum class Stage : uint8_t { compute, exchange, place };

/// A row of the pass list: name, description and function.
struct Pass {
  std::string_view name;
  std::string_view doc;
  /// True if the pass is needed for correct results and cannot be skipped.
  bool required = false;
  Stage stage = Stage::compute;
  void (*run)(TrainGraph&, PassContext&) = nullptr;
};

/// Returns all passes in the order in which they run.
std::span<const Pass> pass_list();

/// Runs the passes of a stage, and verifies the graph after each. Throws UserError if `off` has an unknown
/// name, or that of a required pass.
void run_passes(TrainGraph& train, PassContext& context, Stage stage);

}  // namespace hearth::passes
