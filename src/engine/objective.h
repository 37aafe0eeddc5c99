#pragma once

#include <compare>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace hearth::engine {

/// What a program is compiled for: rows of a micro-batch and, for tokens, how long they are (0: as long as
/// the objective says).
struct BatchShape {
  int64_t num_rows = 0;
  int64_t row_length = 0;
  auto operator<=>(const BatchShape&) const = default;
};

/// What training minimizes: it names the inputs of a micro-batch and grows the graph from them to a loss per
/// sample. The builder's mode says whether the graph is for training or for evaluation.
class Objective {
 public:
  virtual ~Objective() = default;

  struct Graph {
    std::vector<ir::ValueId> inputs;  ///< in the order of MicroBatch::inputs
    /// f32 [samples]; their sum is what the gradient is taken of. kNone: the graph is only evaluated.
    ir::ValueId losses = ir::kNone;
    std::vector<ir::ValueId> outputs;  ///< what Engine::output() hands out, after evaluation
    /// Of an evaluation graph, what other programs are given of an exported model, by name: it depends on the
    /// first input alone.
    std::vector<std::pair<std::string, ir::ValueId>> exported;
  };
  virtual Graph build(nn::Builder& builder, BatchShape shape) const = 0;
};

}  // namespace hearth::engine
