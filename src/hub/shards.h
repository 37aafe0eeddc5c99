#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "hub/model_weights.h"

namespace hearth::hub {

/// A tensor of the output that is computed from a tensor of the model.
struct OutputTensor {
  io::TensorView view;                ///< name, dtype and shape
  RowEncoding encoding = {};          ///< format of the rows; without `write`: the dtype of `view`
  std::vector<std::byte> bytes = {};  ///< contents that do not depend on the weights; empty: encoded rows
};
/// Returns the tensors that replace a tensor of the model; empty if it is written in its dtype.
using Replace = std::function<std::vector<OutputTensor>(const io::TensorView& source)>;

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
                   const std::string& stem, const Replace& replace = {});

}  // namespace hearth::hub
