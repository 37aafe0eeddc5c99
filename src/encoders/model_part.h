#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/engine.h"
#include "io/weight_files.h"

namespace hearth::encoders {

/// Device and settings for evaluating a ModelPart.
struct Compute {
  int num_threads = 1;
  bool winograd = true;                      ///< true if convolutions on the CPU may use Winograd's algorithm
  std::optional<exec::GpuRequest> gpu = {};  ///< nullopt: runs on the CPU
  SelfTestMode self_test = SelfTestMode::once;
};

/// A part of a model that is compiled and evaluated separately, in f32. One ModelPart serves several parts
/// with equal structure, such as layers, one after the other: load() replaces the weights.
class ModelPart {
 public:
  using Graph = engine::Objective::Graph;
  /// `grow` builds the graph from the part's inputs to its output. Allocates all memory; throws DoesNotFit
  /// if a GPU has too little free memory.
  ModelPart(std::function<Graph(nn::Builder&)> grow, const Compute& compute);
  /// Returns a lower bound of the bytes that a part would allocate for weights and activations.
  static int64_t needed_bytes(std::function<Graph(nn::Builder&)> grow, const Compute& compute);

  /// Reads the weights of the part. In the files, their names begin with `prefix`. Throws a UserError that
  /// names a missing or mismatched tensor.
  void load(const io::WeightFiles& files, const std::string& prefix);
  /// Runs the part and returns its output, which is valid until the next run. Each input array must have
  /// engine::kInputSlack readable bytes after its end.
  std::span<const float> run(const engine::MicroBatch& inputs);
  int64_t memory_bytes() const { return engine_->plan().memory_bytes(); }

 private:
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace hearth::encoders
