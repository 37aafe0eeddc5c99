#pragma once

#include "cost/device.h"
#include "passes/train_graph.h"

namespace hearth::passes {

/// Result of encode_saved().
struct EncodeResult {
  int num_encoded = 0;        ///< number of values that are stored as codes
  int num_recomputed = 0;     ///< number of values that are recomputed from decoded ones
  int64_t full_bytes = 0;     ///< bytes of all these values in the precision of training
  int64_t encoded_bytes = 0;  ///< bytes of the codes and scales
  double seconds = 0;         ///< modeled time of encoding, decoding and recomputing
};

/// Stores saved activations in E4M3 with a scale for each row (ops/transfer/transfer.h) between the forward
/// and the backward pass: encodes a value after its last use by the forward pass, and decodes it before its
/// first use by the backward pass. Only gradients get values with rounding errors, never the loss. Includes
/// inputs of linear layers, convolutions, norms and activation functions; not those of attention and losses,
/// nor masks, integers, statistics and values smaller than `min_bytes`. Outputs of norms and activation
/// functions are recomputed from decoded inputs instead, if these are stored too.
///
/// The choice depends on the graph's forward and backward ops only, not on memory budget, device or number of
/// workers, so that all of them give the same bits.
EncodeResult encode_saved(TrainGraph& train, const cost::Device& device, int64_t min_bytes);

}  // namespace hearth::passes
