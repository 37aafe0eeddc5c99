#pragma once

#include <string>

#include "hub/export.h"
#include "hub/model_weights.h"

namespace hearth::hub {

/// Writes weights into a folder: as one file `stem`.safetensors, or as files of at most options.shard_bytes
/// with an index. 0: files as the model has them. Weights in 8 bits become bf16.
void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder,
                   const std::string& stem);

}  // namespace hearth::hub
