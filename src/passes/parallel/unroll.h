#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/parallel/stages.h"

namespace hearth::passes {

/// A pass of one micro-batch through a stage, or a message between two stages.
struct PipelineEvent {
  enum class Kind : uint8_t { early, forward, backward, late, message };
  Kind kind = Kind::forward;
  int stage = 0;        ///< for passes
  int64_t micro = 0;    ///< for passes, and for messages that are not MicroPart::once
  size_t crossing = 0;  ///< for messages: index in the list of crossings
};

/// Returns the order of all events of a pipeline's stages in one update: 1F1B, where stage s of S first runs
/// S - 1 - s forward passes, then alternates one forward and one backward pass, then runs the remaining
/// backward passes (PipeDream-Flush, Narayanan et al., arXiv 2006.09503).
///
/// Stages that each process their own events in this order cannot deadlock, even if a send ends only when it
/// is received and a worker does one thing at a time: a message comes after the pass that computes it and
/// before the pass that reads it, at the same place of the order for both ends. So the first unfinished event
/// can always run, because its participants have nothing left before it. Events are sorted by their end if a
/// forward pass takes one tick and a backward pass two, so that a message that arrives during a pass is
/// before that pass and its transfer overlaps with it. Early and late work takes no tick: early work is one
/// micro-batch's time ahead of the pass that reads it, late work after the pass during which it could begin.
std::vector<PipelineEvent> order_pipeline(int num_stages, int64_t num_micro,
                                          std::span<const Crossing> crossings);

/// Options of unroll().
struct UnrollOptions {
  int stage = 0;
  int64_t num_micro = 1;
  bool through_host = false;  ///< true if sent values are on a GPU and are staged through host memory
  std::vector<ir::Value> first_values;  ///< persistent values to add to the graph first, by name
};

/// Returns the name of a micro-batch's input or scalar in the graph of a full update.
std::string name_in_micro_batch(int64_t micro, std::string_view name);

/// Returns one stage's work in an update as one graph. `train` is the forward and backward pass of a
/// micro-batch, with gradient accumulation; its nodes of this stage are repeated for every micro-batch in the
/// order of order_pipeline, with a `send` or `receive` for each crossing value. Inputs and scalars are named
/// by name_in_micro_batch; persistent values keep their names and are updated by one micro-batch after the
/// other, so that gradients accumulate as in separate runs. Outputs: those of `train` that this stage
/// computes, for each micro-batch. Gradients: those of this stage's weights after the last micro-batch.
TrainGraph unroll(const TrainGraph& train, const Stages& stages, const UnrollOptions& options);

}  // namespace hearth::passes
