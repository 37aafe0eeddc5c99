#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/parallel/stages.h"

namespace hearth::passes {

/// A pass of one micro-batch through a stage, or a value on its way between two.
struct PipelineEvent {
  enum class Kind : uint8_t { early, forward, backward, late, message };
  Kind kind = Kind::forward;
  int stage = 0;        ///< of a pass
  int64_t micro = 0;    ///< of a pass, and of a message that is not MicroPart::once
  size_t crossing = 0;  ///< of a message: its place in the crossings
};

/// All that the stages of a pipeline do in an update, in one order: 1F1B, where stage s of S passes
/// S - 1 - s micro-batches forward, then one forward and one backward in turns, then the rest backward
/// (PipeDream-Flush, Narayanan and others, arXiv 2006.09503).
///
/// Stages that each do their own events in this order never wait for each other in a circle, even where a
/// send ends only when it is received and a worker does one thing at a time: a message stands after the pass
/// that makes it and before the pass that reads it, and in one place for both ends. So of all events
/// that are not done, the first can always be done: whoever has a part in it has nothing left before it.
/// The order is that of the ends of events, were a forward pass to take one tick and a backward pass two, so
/// that a message that arrives while a pass is computed stands before it and is received beside it. What
/// a stage makes early or late takes no tick: it stands a micro-batch's time ahead of the pass that reads it,
/// or after the pass beside which it could begin.
std::vector<PipelineEvent> order_pipeline(int num_stages, int64_t num_micro,
                                          std::span<const Crossing> crossings);

struct UnrollOptions {
  int stage = 0;
  int64_t num_micro = 1;
  bool through_host = false;            ///< what is sent is a GPU's, and is brought to host memory first
  std::vector<ir::Value> first_values;  ///< persistent ones that the graph begins with, by name
};

/// What an input or scalar of a micro-batch is called in the graph of a whole update.
std::string name_in_micro_batch(int64_t micro, std::string_view name);

/// What one stage does in an update as one graph: `train`, a micro-batch's forward and backward pass with
/// what keeps its gradients, repeated for every micro-batch, the nodes of this stage alone, in the order of
/// order_pipeline, with a `send` or `receive` for each value that crosses. Inputs and scalars have
/// their name_in_micro_batch; persistent values keep their names and are written by one micro-batch after
/// the other, so that sums add up as in separate runs. Outputs: those of `train` that this stage makes,
/// micro-batch by micro-batch. Gradients: of the weights that this stage has, as the last micro-batch
/// leaves them.
TrainGraph unroll(const TrainGraph& train, const Stages& stages, const UnrollOptions& options);

}  // namespace hearth::passes
