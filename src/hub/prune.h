#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/pruning.h"
#include "hub/model_folder.h"
#include "hub/model_weights.h"
#include "hub/shards.h"
#include "models/decoder/config.h"
#include "nn/module.h"

namespace hearth::hub {

struct PruneOptions {
  double sparsity = 0.5;  ///< fraction of the weights of a layer that become zero
  PrunePattern pattern = PrunePattern::unstructured;
};

/// L2 norms of the inputs of linear layers over calibration tokens, by name of the layer's weight.
using InputNorms = std::map<std::string, std::vector<float>>;

struct PruneResult {
  int64_t num_layers = 0;    ///< number of pruned linear layers
  int64_t num_left_out = 0;  ///< number of layers whose inputs are not a multiple of the pattern's group
  int64_t num_weights = 0;   ///< weights of the pruned layers
  int64_t num_zeros = 0;     ///< weights of the pruned layers that are zero
};

/// Prunes a linear layer's weight [out, in], in the order of Builder::linear. Without `norms`, by magnitude:
/// compares |W| over the layer. With the norms of the layer's inputs, by Wanda (Sun et al. 2023, arXiv
/// 2306.11695): compares |W_ij| norm_j in each row and prunes floor(sparsity * in) weights of it. N:M
/// patterns compare the weights of each group of adjacent inputs.
void prune_weight(std::span<float> weight, int64_t in_features, const PruneOptions& options,
                  const std::vector<float>* norms);

/// Returns the weights of the decoder's linear layers, except the output head and the routers of experts.
std::vector<nn::Tensor> linear_weights(const models::DecoderConfig& config);
/// True if the pattern's groups divide the inputs of a layer.
bool fits_pattern(const nn::Tensor& weight, PrunePattern pattern);

/// Writes a language model, merged with its adapter, with pruned linear layers. Holds one tensor in memory at
/// a time. `norms`: Wanda's norms for every pruned layer; null: prunes by magnitude. If it throws a
/// UserError, the folder is not created.
PruneResult prune_folder(const ModelFolder& model, const FolderOptions& folder, const PruneOptions& options,
                         const InputNorms* norms = nullptr);

}  // namespace hearth::hub
