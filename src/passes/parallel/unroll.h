#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/parallel/stages.h"

namespace hearth::passes {

/// An event of a pipeline: a pass of one micro-batch through a stage, or a message between two stages.
struct PipelineEvent {
  enum class Kind : uint8_t { early, forward, backward, late, message };
  Kind kind = Kind::forward;
  int stage = 0;        ///< for passes: the stage
  int64_t micro = 0;    ///< number of the micro-batch, except for messages of phase MicroPart::once
  size_t crossing = 0;  ///< for messages: index in the list of crossings
};

/// Returns the order of the events of all stages in one update. It is 1F1B: stage s of S first runs S - 1 - s
/// forward passes, then alternates between one forward and one backward pass, and then runs the remaining
/// backward passes (PipeDream-Flush, Narayanan et al., arXiv 2006.09503).
///
/// Stages that each process their own events in this order cannot deadlock, even if a send returns only when
/// the value was received, and a worker does one thing at a time. A message comes after the pass that
/// computes the value and before the pass that reads it, and sender and receiver see it at the same position
/// in the order. So the first unfinished event can always run: its participants have finished all earlier
/// events. Events are sorted by the time at which they end if a forward pass takes one tick and a backward
/// pass two. A message that arrives during a pass is therefore before that pass, and its transfer overlaps
/// with it. Early and late work takes no time: early work is placed one micro-batch's time before the pass
/// that reads it, late work after the pass during which it could start.
std::vector<PipelineEvent> order_pipeline(int num_stages, int64_t num_micro,
                                          std::span<const Crossing> crossings);

/// Options of unroll().
struct UnrollOptions {
  int stage = 0;
  int64_t num_micro = 1;
  bool through_host = false;  ///< true if sent values are on a GPU and are staged through host memory
  /// Persistent values that are added to the graph first.
  std::vector<ir::Value> first_values;
};

/// Returns the name that an input or scalar of a micro-batch has in the graph of a full update.
std::string name_in_micro_batch(int64_t micro, std::string_view name);

/// Returns the graph of one stage for a full update. `train` is the graph of one micro-batch: forward and
/// backward pass, and gradient accumulation. The nodes of this stage are repeated for every micro-batch in
/// the order of order_pipeline(), with a `send` or `receive` node for each value that crosses a cut. Inputs
/// and scalars are named by name_in_micro_batch(). Persistent values keep their names, and each micro-batch
/// continues with the values that the previous one wrote, so that gradients accumulate as in separate runs.
/// Outputs: for each micro-batch, the outputs of `train` that this stage computes. Gradients: those of this
/// stage's weights after the last micro-batch.
TrainGraph unroll(const TrainGraph& train, const Stages& stages, const UnrollOptions& options);

}  // namespace hearth::passes
