#pragma once

#include <memory>
#include <vector>

#include "nn/module.h"

namespace hearth::train {

/// What training minimises: it names the inputs of a micro-batch and grows the graph from them to a loss per
/// sample. The builder's mode says whether the graph is for training or for evaluation.
class Objective {
 public:
  virtual ~Objective() = default;

  struct Graph {
    std::vector<ir::ValueId> inputs;   ///< in the order of MicroBatch::inputs
    ir::ValueId losses = ir::kNone;    ///< f32 [samples]; their sum is what the gradient is taken of
    std::vector<ir::ValueId> outputs;  ///< what Engine::output() hands out, after evaluation
  };
  virtual Graph build(nn::Builder& builder, int64_t num_rows) const = 0;
};

}  // namespace hearth::train
