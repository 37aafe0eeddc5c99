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
#include "engine/pruning.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/matmul_choice.h"
#include "exec/device/self_test.h"
#include "exec/program.h"
#include "passes/parallel/stages.h"
#include "passes/pipeline.h"

namespace hearth::engine {

/// Options of a plan: all settings that programs depend on. Settings of data and files are elsewhere.
struct EngineOptions {
  std::shared_ptr<const Objective> objective;
  OptimizerOptions optimizer;
  /// If adapter.rank > 0, only the adapter is trained; the base weights are then frozen and stored in
  /// `precision`.
  nn::Adapter adapter;
  QatRounding rounding;  ///< of linear layers (nn::Builder::round_linear)
  PruneOptions prune;
  /// Prefixes of the names of modules whose weights do not train (nn::Builder::freeze).
  std::vector<std::string> frozen;
  int64_t batch = 32;  ///< rows of a micro-batch
  /// Row lengths in tokens; programs are compiled for every combination with a micro-batch size. Empty: only
  /// the length that the objective sets.
  std::vector<int64_t> row_lengths;
  /// Micro-batches per update (gradient accumulation). Above 1, the sums of gradients need additional memory.
  int64_t accumulate = 1;
  /// Number of equal groups (shards) of an update's micro-batches. Gradients are summed within each shard,
  /// then pairwise over shards (distributed/sum.h), and running statistics are updated once per update.
  /// Results depend on this number, not on which worker computes which shard.
  int64_t shards = 1;
  /// Number of workers, each with an engine, that share the shards of an update; each computes a power of two
  /// of them. See Engine::join().
  int64_t num_workers = 1;
  int rank = 0;                              ///< rank of this engine's worker
  Parallel parallel = Parallel::data;        ///< parallelism strategy of several workers
  std::vector<passes::StageDevice> devices;  ///< devices of the workers of a pipeline
  /// Compression of the gradients that workers send.
  passes::CompressOptions compress;
  LocalStepsOptions local;
  DType precision = DType::f32;
  MatmulPrecision matmul_precision = MatmulPrecision::same;  ///< see nn::Builder::multiply_in
  uint64_t seed = 0;
  int num_threads = 1;
  bool winograd = true;  ///< true if convolutions on the CPU may use Winograd's algorithm
  /// Max bytes of the arena; 0 = no limit.
  int64_t budget_bytes = 0;
  /// Values that are offloaded to host memory. On the CPU, offloading only copies within the same memory.
  passes::OffloadOptions offload;
  /// Device whose rates predict the cost of recomputation and copies.
  cost::Device device;
  std::vector<std::string> passes_off;
  exec::Backend backend = exec::Backend::cpu;
  /// For Backend::gpu: true if workers all-reduce arrays in GPU memory, with a process group that has
  /// Capability::device_memory; false: in host memory.
  bool reduces_on_gpu = false;
  /// For Backend::gpu: the GPU to use.
  exec::GpuRequest gpu = {.device = "emulated"};
  /// For Backend::gpu: settings of the self-test of kernels before their first use.
  exec::SelfTest::Options self_test;
  /// For Backend::gpu: file that stores the fastest matmul implementations found by autotuning; nullopt: uses
  /// the default ones.
  std::optional<fs::path> matmul_cache;
  std::function<void(std::string_view pass, const ir::Graph&, double seconds)> after_pass;
};

}  // namespace hearth::engine
