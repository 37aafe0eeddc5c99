#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/choices.h"
#include "cost/device.h"
#include "engine/local_steps.h"
#include "engine/objective.h"
#include "engine/optimizer.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/matmul_choice.h"
#include "exec/device/self_test.h"
#include "exec/program.h"
#include "passes/parallel/stages.h"
#include "passes/pipeline.h"

namespace hearth::engine {

/// What an engine compiles: everything that changes the programs, nothing about data or files.
struct EngineOptions {
  std::shared_ptr<const Objective> objective;
  OptimizerOptions optimizer;
  /// With a rank, only the adapter trains; the weights under it are kept in `precision`.
  nn::Adapter adapter;
  /// Modules whose weights do not train, by the start of their names (nn::Builder::freeze).
  std::vector<std::string> frozen;
  int64_t batch = 32;  ///< rows of a micro-batch
  /// Lengths that rows of tokens may have, for every size of a micro-batch; empty: the objective's own.
  std::vector<int64_t> row_lengths;
  /// Micro-batches per update; above 1, gradients are summed in memory of their own.
  int64_t accumulate = 1;
  /// Equal parts of an update's micro-batches that are summed each by itself, then by pairs
  /// (distributed/sum.h); statistics of batch norms move once per update. Results depend on it, not on who
  /// runs which part.
  int64_t shards = 1;
  /// Engines that share an update's shards, a power of two each: see join().
  int64_t num_workers = 1;
  int rank = 0;                              ///< of this engine among them
  Parallel parallel = Parallel::data;        ///< of several workers
  std::vector<passes::StageDevice> devices;  ///< the workers', of a pipeline
  /// How workers send less of their gradients.
  passes::CompressOptions compress;
  /// How seldom they send anything.
  LocalStepsOptions local;
  DType precision = DType::f32;
  uint64_t seed = 0;
  int num_threads = 1;
  bool winograd = true;  ///< convolutions on the CPU may use Winograd's algorithm
  /// Arena budget; 0 = none.
  int64_t budget_bytes = 0;
  /// What is kept in host memory; on the CPU, copies within the one memory.
  passes::OffloadOptions offload;
  /// What recomputing and copying are weighed by.
  cost::Device device;
  std::vector<std::string> passes_off;
  exec::Backend backend = exec::Backend::cpu;
  /// Of Backend::gpu: workers sum between GPUs, by a group with Capability::device_memory, not through host
  /// memory.
  bool meets_on_gpu = false;
  /// Of the gpu backend.
  exec::GpuWish gpu = {.device = "emulated"};
  /// Of Backend::gpu: which of its kernels are tried first.
  exec::SelfTest::Options self_test;
  /// Of Backend::gpu: where its matmuls' measured ways are kept; none: the usual ways, unmeasured.
  std::optional<fs::path> matmuls;
  std::function<void(std::string_view pass, const ir::Graph&, double seconds)> after_pass;
};

}  // namespace hearth::engine
