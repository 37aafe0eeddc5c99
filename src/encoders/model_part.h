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

/// Where parts of models are evaluated.
struct Compute {
  int num_threads = 1;
  bool winograd = true;                   ///< convolutions on the CPU may use Winograd's algorithm
  std::optional<exec::GpuWish> gpu = {};  ///< none: on the processor
  SelfTestMode self_test = SelfTestMode::once;
};

/// A part of a model that is evaluated alone, in f32. Parts that are alike, such as layers,
/// share its program and its memory, into which the weights of one after the other are read.
class ModelPart {
 public:
  using Graph = engine::Objective::Graph;
  /// `grow`: from the part's inputs to its output. Allocates everything; DoesNotFit where a GPU has too
  /// little free.
  ModelPart(std::function<Graph(nn::Builder&)> grow, const Compute& compute);
  /// What a part would need: its weights and what it computes.
  static int64_t needed_bytes(std::function<Graph(nn::Builder&)> grow, const Compute& compute);

  /// Reads the weights, whose names in the files begin with `prefix`. UserError names what is missing or
  /// differs.
  void load(const io::WeightFiles& files, const std::string& prefix);
  /// The output for these inputs, each with engine::kInputSlack readable bytes after it; valid until the next
  /// run.
  std::span<const float> run(const engine::MicroBatch& inputs);
  int64_t memory_bytes() const { return engine_->plan().memory_bytes(); }

 private:
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace hearth::encoders
