#pragma once

#include "hub/model_folder.h"
#include "recipe/recipe.h"
#include "run/channel_scores.h"

namespace hearth::run {

/// Options of structured pruning.
struct ChannelOptions {
  double flops = 0.5;  ///< fraction of the FLOPs of a prediction that the smaller model may have
  ChannelScore score = ChannelScore::norm;
  int64_t multiple = 16;  ///< numbers of channels are multiples of this, for fast kernels
};

/// Result of structured pruning.
struct PrunedChannels {
  fs::path weights;                          ///< the weights that were pruned
  double flops_before = 0, flops_after = 0;  ///< FLOPs of a prediction for one image or token
  int64_t num_weights_before = 0, num_weights_after = 0;
};

/// Removes the channels with the lowest scores from the image model of a run, and writes the smaller model to
/// the new folder `out`: config.yaml, whose model.widths and init describe it, and its weights. Throws a
/// UserError if the model has no removable channels or options.flops cannot be reached.
PrunedChannels prune_channels(const recipe::Recipe& recipe, const fs::path& run, const fs::path& out,
                              const ChannelOptions& options);

/// Removes attention heads and columns of the MLPs with the lowest scores from a language model, the same
/// number in every layer, and writes the smaller model to the new folder `out`, as transformers does. A key
/// and value head is removed together with its query heads. Holds one tensor in memory at a time. `recipe`:
/// recipe of the model's run, for ChannelScore::taylor; null: none. Throws a UserError if nothing can be
/// removed, or options.flops cannot be reached.
PrunedChannels prune_decoder(const hub::ModelFolder& model, const recipe::Recipe* recipe, const fs::path& out,
                             const ChannelOptions& options);

}  // namespace hearth::run
