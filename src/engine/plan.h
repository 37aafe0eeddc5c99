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

/// Use of a program: last micro-batch of an update, earlier micro-batches, evaluation, or gradients without
/// an update (Inspector).
enum class Purpose : uint8_t { step, accumulate, evaluate, gradients };
using Programs = std::map<BatchShape, exec::Program, std::greater<>>;

/// Programs for the gradient sums of 2^level shards, where level is the index in Plan::levels: `save` stores
/// such a sum; `add` adds the stored sum to that of the next 2^level shards.
struct ShardLevel {
  exec::Program save, add;
};

/// A graph after the compute passes, before memory is assigned to its values.
struct ComputedGraph {
  passes::TrainGraph train;
  Purpose purpose = Purpose::step;
  /// Workspace of each node in bytes, at the index of the node's first output; -1 at other indices.
  std::vector<int64_t> workspace_bytes;
};

/// Data of a pipeline stage in addition to its programs.
struct StagePlan {
  std::map<std::string, int> homes;  ///< stage of each weight (Stages::homes) and of its optimizer state
  std::vector<ir::Value> values;     ///< weights and states of a checkpoint, in the checkpoint's order
  int64_t num_micro = 1;             ///< number of micro-batches that the program in Plan::step computes
  /// Programs for one micro-batch, by shape and by whether they update the weights. Used for updates with
  /// another number of micro-batches than num_micro.
  std::map<std::pair<BatchShape, bool>, exec::Program> single_micro;
  std::map<BatchShape, std::vector<int64_t>> input_bytes;  ///< bytes of each input; 0: not read by this stage
  struct Output {
    int stage = 0;
    int64_t num_elements = 0;
  };
  std::map<BatchShape, std::vector<Output>> outputs;  ///< outputs of an evaluation
  double flops = 0;                                   ///< FLOPs of an update, summed over all stages
};

/// Programs and memory layout of a run. Plain data, built by make_plan() (plan_builder.h) before the run
/// without accessing a device. All programs share one arena, because they never run at the same time.
struct Plan {
  EngineOptions options;
  std::vector<nn::Tensor> tensors;
  std::vector<nn::Tensor> teacher_tensors;  ///< weights of a teacher in the graph; not in checkpoints
  std::vector<std::string> input_names;     ///< names of the inputs of the objective
  std::vector<std::string> tables;          ///< names of the weights that Builder::table added
  bool has_losses = true;
  bool is_packed = true;  ///< false: values have no offsets, and arena_bytes is a lower bound
  std::unique_ptr<exec::PersistentLayout> layout = std::make_unique<exec::PersistentLayout>();
  int64_t arena_bytes = 0;
  int64_t host_arena_bytes = 0;  ///< bytes of host memory for offloaded activations
  /// Programs by batch shape: for the last micro-batch of an update and the update itself, for earlier
  /// micro-batches, and for evaluation.
  Programs step, accumulate, evaluate;
  std::vector<ShardLevel> levels;
  std::optional<exec::Program> prune;  ///< program that sets the masks of `pruned` (pruning.h)
  std::optional<exec::Program> outer;  ///< program of the outer step (local_steps.h)
  std::vector<RunningStatistic> statistics;
  std::vector<PrunedWeight> pruned;  ///< weights that are pruned; empty: none
  /// For each weight, the worker that stores it (sharded weights) or its optimizer state (ZeRO-1).
  std::map<std::string, int> owners;
  StagePlan stage;
  passes::EncodeResult encoded;
  passes::RecomputeResult recompute;
  double flops_per_update = 0;  ///< sum over all workers, with recomputation
  /// True if no worker has the full model, so that all workers evaluate every batch together.
  bool evaluates_jointly = false;
  std::vector<int64_t> stage_parameters;  ///< number of trained weights of each pipeline stage; may be empty
  std::vector<ComputedGraph> computed;    ///< graphs for replan(); empty if is_packed

  /// Returns the program for a full last micro-batch of an update and the update itself, which `hearth plan`
  /// shows.
  const exec::Program& train_program() const { return step.begin()->second; }
  /// Returns the program for a full micro-batch that is not the last of its update; null if updates have one
  /// micro-batch.
  const exec::Program* accumulate_program() const {
    return accumulate.empty() ? nullptr : &accumulate.begin()->second;
  }
  std::vector<const exec::Program*> programs() const;
  /// Returns the FLOPs of an update by all workers without recomputation, as MFU counts them.
  double model_flops() const;
  /// Returns the total bytes of all allocations, on host and GPU.
  int64_t memory_bytes() const { return arena_bytes + host_arena_bytes + kept_bytes(); }
  /// Returns the bytes of this worker's weights and states.
  int64_t kept_bytes() const { return layout->num_bytes() - layout->bytes_of(ir::Role::remote); }
  /// Returns the bytes of free GPU memory that the plan needs.
  int64_t gpu_bytes() const;
  /// Estimates the time to evaluate one batch of this shape on EngineOptions::device, assuming a tenth of the
  /// device's modeled speed, because attention over long rows is not faster.
  double evaluation_seconds(BatchShape shape) const;
  /// Returns the timeout, in seconds, after which an update or an evaluated batch counts as stuck.
  double allowed_seconds() const;
};

/// Self-test and autotuning of the kernels on a device, used while a plan is built. With null pointers, every
/// kernel is used without a test and matmuls use the default implementation.
struct DeviceChecks {
  exec::SelfTest* kernels = nullptr;
  exec::MatmulChoice* matmuls = nullptr;
};

}  // namespace hearth::engine
