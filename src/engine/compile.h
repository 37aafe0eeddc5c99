#pragma once

#include <memory>
#include <span>

#include "engine/compiled.h"

namespace hearth::engine {

/// Plans everything. `train_sizes`, `eval_sizes`: every micro-batch size that training and evaluation will
/// use, the largest first. UserError where the model or the number of workers does not allow it.
Compiled compile(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes, const DeviceTrials& trials = {});
/// Only what the programs need: their arena is as low as no packing can be below, and none of them can run.
Compiled measure(const EngineOptions& options, std::span<const int64_t> train_sizes,
                 std::span<const int64_t> eval_sizes);
/// Plans anew, under another budget, what was measured of training at one size, without growing its graphs
/// again.
void place_again(Compiled& measured, const passes::OffloadOptions& offload, int64_t budget_bytes);
/// A program of forward and backward alone, whose outputs are the loss and every gradient. Its weights are
/// those of `compiled`.
exec::Program compile_gradients(Compiled& compiled, BatchShape shape, const DeviceTrials& trials);

}  // namespace hearth::engine
