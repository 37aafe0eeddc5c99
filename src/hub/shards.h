#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/file.h"

namespace hearth::hub {

class ModelWeights;

struct FolderOptions {
  fs::path out;               ///< a folder that is not there yet, or empty: else UserError before any work
  std::optional<DType> type;  ///< of the weights; none: as the model has them
  int64_t shard_bytes = 0;    ///< most bytes of a file of weights; 0: files as the model has them
  int num_threads = 1;
  std::map<std::string, std::string> metadata = {};  ///< metadata of the safetensors files
};

/// Writes weights into a folder: as one file `stem`.safetensors, or as files of at most options.shard_bytes
/// with an index. 0: files as the model has them. Weights in 8 bits become bf16.
void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder,
                   const std::string& stem);

}  // namespace hearth::hub
