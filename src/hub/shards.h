#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/file.h"

namespace hearth::hub {

class ModelWeights;

struct FolderOptions {
  fs::path out;               ///< output folder; must not exist or be empty
  std::optional<DType> type;  ///< dtype of the weights; nullopt: unchanged
  int64_t shard_bytes = 0;  ///< max bytes of a weights file; 0: tensors are in the same files as in the input
  int num_threads = 1;
  std::map<std::string, std::string> metadata = {};  ///< metadata of the safetensors files
};

/// Writes weights into a folder: one file `stem`.safetensors, or shards of at most options.shard_bytes with
/// an index (0: the same shards as the input). fp8 weights are converted to bf16, unless options.type is set.
void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder,
                   const std::string& stem);

}  // namespace hearth::hub
