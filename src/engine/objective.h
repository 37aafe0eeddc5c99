#pragma once

#include <compare>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace hearth::engine {

/// Shape of the micro-batches of a program: number of rows and their length in tokens (0: the length that
/// the objective sets). Objectives of images of several sizes encode height and width in row_length.
struct BatchShape {
  int64_t num_rows = 0;
  int64_t row_length = 0;
  auto operator<=>(const BatchShape&) const = default;
};

/// The function that training minimizes. Defines the inputs of a micro-batch and builds the graph that
/// computes a loss per sample from them. The mode of the builder selects training or evaluation.
class Objective {
 public:
  virtual ~Objective() = default;

  struct Graph {
    std::vector<ir::ValueId> inputs;  ///< inputs by name; every micro-batch has an array for each
    /// Loss of each sample, f32 [samples]; training minimizes their sum. kNone: the graph cannot be trained,
    /// only evaluated.
    ir::ValueId losses = ir::kNone;
    std::vector<ir::ValueId> outputs;  ///< outputs of an evaluation, for Engine::output()
    /// Outputs of the exported (ONNX) model, by name; only in evaluation graphs. They may depend on the first
    /// input only.
    std::vector<std::pair<std::string, ir::ValueId>> exported;
  };
  virtual Graph build(nn::Builder& builder, BatchShape shape) const = 0;
};

}  // namespace hearth::engine
