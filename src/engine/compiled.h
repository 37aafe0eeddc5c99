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

/// What a program is for.
enum class Purpose : uint8_t { step, accumulate, evaluate, gradients };
using Programs = std::map<BatchShape, exec::Program, std::greater<>>;

/// Two programs that put a sum of 2^level shards away, and add it to that of the next 2^level.
struct Level {
  exec::Program put_away, add;
};

/// A graph before it is placed.
struct ComputedGraph {
  passes::TrainGraph train;
  Purpose purpose = Purpose::step;
  /// Of the node that makes each value first; -1 elsewhere.
  std::vector<int64_t> workspace_bytes;
};

/// What a stage of a pipeline has beside its programs.
struct StagePlan {
  std::map<std::string, int> homes;  ///< Stages::homes, and those of what the optimizer keeps of weights
  std::vector<ir::Value> values;     ///< what a checkpoint holds, in its order
  int64_t num_micro = 1;             ///< of the program in Compiled::step, which updates
  /// Programs of one micro-batch, with the update or without, for what comes in other numbers.
  std::map<std::pair<BatchShape, bool>, exec::Program> singles;
  std::map<BatchShape, std::vector<int64_t>> input_bytes;  ///< of each input; 0: not read here
  struct Output {
    int stage = 0;
    int64_t num_elements = 0;
  };
  std::map<BatchShape, std::vector<Output>> outputs;  ///< of an evaluation
  double flops = 0;                                   ///< of an update, by all stages
};

/// The programs of a run and where everything lies: plain data, made without a device. One arena serves every
/// program, because they never run at once.
struct Compiled {
  EngineOptions options;
  std::vector<nn::Tensor> tensors;
  std::vector<std::string> input_names;  ///< in the order of MicroBatch::inputs
  std::vector<std::string> tables;       ///< weights that Builder::table made
  bool has_losses = true;
  bool is_packed = true;
  std::unique_ptr<exec::PersistentLayout> layout = std::make_unique<exec::PersistentLayout>();
  int64_t arena_bytes = 0;
  int64_t host_arena_bytes = 0;  ///< activations in host memory, beside the arena
  /// Of an update's last micro-batch, of those before it, of evaluation.
  Programs step, accumulate, evaluate;
  std::vector<Level> levels;
  std::optional<exec::Program> outer;  ///< the step together, with local steps
  std::vector<RunningStatistic> statistics;
  std::map<std::string, int> owners;  ///< of weights, where these or their states are shared out
  StagePlan stage;
  passes::RecomputeResult recompute;
  double flops_per_update = 0;  ///< by all workers, with what is computed again
  /// Whether no worker has the whole model: all of them evaluate the same batches, in step.
  bool evaluates_together = false;
  std::vector<int64_t> stage_parameters;  ///< trained weights of each stage of a pipeline, if there are any
  std::vector<ComputedGraph> computed;    ///< where nothing is packed: for place_again()

  /// The program of an update's last full micro-batch, and of the update: what `hearth plan` shows.
  const exec::Program& train_program() const { return step.begin()->second; }
  /// That of a full micro-batch before the last, where there are such; else null.
  const exec::Program* accumulate_program() const {
    return accumulate.empty() ? nullptr : &accumulate.begin()->second;
  }
  std::vector<const exec::Program*> programs() const;
  /// Of an update by all workers, without what is computed again to save memory: what MFU counts.
  double model_flops() const;
  /// Everything that is allocated, wherever it is.
  int64_t memory_bytes() const { return arena_bytes + host_arena_bytes + kept_bytes(); }
  /// Weights and states that are this worker's own.
  int64_t kept_bytes() const { return layout->num_bytes() - layout->bytes_of(ir::Role::remote); }
  /// What a GPU must have free.
  int64_t gpu_bytes() const;
  /// Of one evaluated batch of this shape: a guess by EngineOptions::device, at the tenth of its speed that
  /// attention over long rows reaches.
  double evaluation_seconds(BatchShape shape) const;
  /// How long an update or an evaluated batch may take before it counts as stuck.
  double allowed_seconds() const;
};

/// What trials on the device that is there found out, and find out while compiling. Without them every kernel
/// is trusted and matmuls take their usual way.
struct DeviceTrials {
  exec::SelfTest* kernels = nullptr;
  exec::MatmulChoice* matmuls = nullptr;
};

}  // namespace hearth::engine
