#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/options.h"

namespace hearth::engine {

/// Use of a program or its graph.
enum class Purpose : uint8_t { step, accumulate, evaluate, gradients };
using Programs = std::map<BatchShape, exec::Program, std::greater<>>;

/// Two programs for sums of 2^level shards: one saves such a sum, the other adds it to the sum of the next
/// 2^level shards.
struct ShardLevel {
  exec::Program save, add;
};

/// A graph before memory is assigned to its values.
struct ComputedGraph {
  passes::TrainGraph train;
  Purpose purpose = Purpose::step;
  /// Workspace of each node, at the index of its first output; -1 elsewhere.
  std::vector<int64_t> workspace_bytes;
};

/// Data of a pipeline stage in addition to its programs.
struct StagePlan {
  std::map<std::string, int> homes;  ///< stage of each weight (Stages::homes) and of its optimizer state
  std::vector<ir::Value> values;     ///< values of a checkpoint, in its order
  int64_t num_micro = 1;             ///< micro-batches of the program in Plan::step
  /// Programs for one micro-batch, by shape and by whether they update; used for other numbers of
  /// micro-batches.
  std::map<std::pair<BatchShape, bool>, exec::Program> single_micro;
  std::map<BatchShape, std::vector<int64_t>> input_bytes;  ///< bytes of each input; 0: not read by this stage
  struct Output {
    int stage = 0;
    int64_t num_elements = 0;
  };
  std::map<BatchShape, std::vector<Output>> outputs;  ///< outputs of an evaluation
  double flops = 0;                                   ///< FLOPs of an update, summed over all stages
};

/// Everything that is decided before a run starts: the programs and the memory layout. Plain data, made by
/// make_plan() (plan_builder.h) without a device. All programs share one arena, because they never run at the
/// same time.
struct Plan {
  EngineOptions options;
  std::vector<nn::Tensor> tensors;
  std::vector<std::string> input_names;  ///< inputs of the objective
  std::vector<std::string> tables;       ///< weights made by Builder::table
  bool has_losses = true;
  bool is_packed = true;  ///< false: values have no offsets, and arena_bytes is a lower bound
  std::unique_ptr<exec::PersistentLayout> layout = std::make_unique<exec::PersistentLayout>();
  int64_t arena_bytes = 0;
  int64_t host_arena_bytes = 0;  ///< activations in host memory, in addition to the arena
  /// Programs of the last micro-batch of an update, of earlier micro-batches, and of evaluation.
  Programs step, accumulate, evaluate;
  std::vector<ShardLevel> levels;
  std::optional<exec::Program> outer;  ///< outer step of local steps
  std::vector<RunningStatistic> statistics;
  std::map<std::string, int> owners;  ///< worker that owns each weight or its states, if they are sharded
  StagePlan stage;
  passes::RecomputeResult recompute;
  double flops_per_update = 0;  ///< by all workers, recomputation included
  /// True if no worker has the full model, so that all workers evaluate every batch together.
  bool evaluates_jointly = false;
  std::vector<int64_t> stage_parameters;  ///< number of trained weights of each pipeline stage; may be empty
  std::vector<ComputedGraph> computed;    ///< graphs for replan(); empty if is_packed

  /// Returns the program of the last full micro-batch of an update and of the update: `hearth plan` shows it.
  const exec::Program& train_program() const { return step.begin()->second; }
  /// Returns the program of a full micro-batch before the last; null if updates have one micro-batch.
  const exec::Program* accumulate_program() const {
    return accumulate.empty() ? nullptr : &accumulate.begin()->second;
  }
  std::vector<const exec::Program*> programs() const;
  /// Returns the FLOPs of an update by all workers without recomputation, as MFU counts them.
  double model_flops() const;
  /// Returns the bytes of all allocations, on any device.
  int64_t memory_bytes() const { return arena_bytes + host_arena_bytes + kept_bytes(); }
  /// Returns the bytes of this worker's weights and states.
  int64_t kept_bytes() const { return layout->num_bytes() - layout->bytes_of(ir::Role::remote); }
  /// Returns the bytes that a GPU must have free.
  int64_t gpu_bytes() const;
  /// Estimates the time to evaluate one batch of this shape on EngineOptions::device, at a tenth of its
  /// modeled speed, which attention over long rows reaches.
  double evaluation_seconds(BatchShape shape) const;
  /// Returns the time after which an update or an evaluated batch counts as stuck.
  double allowed_seconds() const;
};

/// Checks of the kernels on a device, which are made while a plan is built. Without them every kernel is
/// trusted and matmuls use the default implementation.
struct DeviceChecks {
  exec::SelfTest* kernels = nullptr;
  exec::MatmulChoice* matmuls = nullptr;
};

}  // namespace hearth::engine
