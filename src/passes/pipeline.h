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

/// What the passes are told, and what they report.
struct PassContext {
  DType precision = DType::f32;
  /// Arena budget for the recompute pass; 0 = none.
  int64_t budget_bytes = 0;
  OffloadOptions offload;
  cost::Device device;
  WorkspaceOf workspace_of;
  /// Adds what consumes the gradients (accumulation or the optimizer); absent for evaluation graphs.
  std::function<void(TrainGraph&)> consume_gradients;
  CompressOptions compress;
  AllReduceOptions all_reduce;
  /// With owners, nodes keep the order that they were made in, which is the same for every worker.
  ShardOptions shard;
  /// Names of passes to leave out.
  std::vector<std::string> off;
  /// Called after every pass that ran, with its name and seconds.
  std::function<void(std::string_view, const ir::Graph&, double)> after_pass;
  RecomputeResult recompute;
};

/// The first passes decide what is computed and in which order, then what workers exchange beside it; the
/// last ones where values wait for a budget.
enum class Stage : uint8_t { compute, exchange, place };

struct Pass {
  std::string_view name;
  std::string_view doc;
  /// A pass that results depend on cannot be switched off.
  bool required = false;
  Stage stage = Stage::compute;
  void (*run)(TrainGraph&, PassContext&) = nullptr;
};

/// Every pass in the order it runs.
std::span<const Pass> pass_list();

/// Runs the passes of a stage, verifying the graph after each pass. UserError for an unknown or required name
/// in `off`.
void run_passes(TrainGraph& train, PassContext& context, Stage stage);

}  // namespace hearth::passes
