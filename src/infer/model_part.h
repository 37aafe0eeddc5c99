#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "engine/engine.h"
#include "io/weight_files.h"

namespace hearth::infer {

/// A part of a model that is evaluated alone, in f32 on the processor. Parts that are alike, such as layers,
/// share its program and its memory, into which the weights of one after the other are read.
class ModelPart {
 public:
  using Graph = engine::Objective::Graph;
  /// `grow`: from the part's inputs to its output. Allocates everything.
  ModelPart(std::function<Graph(nn::Builder&)> grow, int num_threads);
  /// What a part would need: its weights and what it computes.
  static int64_t needed_bytes(std::function<Graph(nn::Builder&)> grow, int num_threads);

  /// Reads the weights, whose names in the files begin with `prefix`. UserError names what is missing or
  /// differs.
  void load(const io::WeightFiles& files, const std::string& prefix);
  /// The output for these inputs, each with engine::kInputSlack readable bytes after it; valid until the next
  /// run.
  std::span<const float> run(std::initializer_list<const void*> inputs);
  int64_t memory_bytes() const { return engine_->compiled().memory_bytes(); }

 private:
  std::unique_ptr<engine::Engine> engine_;
};

}  // namespace hearth::infer
