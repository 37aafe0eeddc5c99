#pragma once

#include <optional>

#include "base/dtype.h"
#include "hub/model_folder.h"

namespace hearth::hub {

/// Whether a folder is that of a run on images.
bool is_image_run(const fs::path& folder);

struct FolderOptions {
  fs::path out;               ///< a folder that is not there yet, or empty: else UserError before any work
  std::optional<DType> type;  ///< of the weights; none: as the model has them
  int64_t shard_bytes = 0;    ///< most bytes of a file of weights; 0: files as the model has them
  int num_threads = 1;
};

/// Writes a model, merged with its adapter, as a transformers folder: weights, config.json and tokenizer, one
/// tensor in memory at a time. Returns how many tensors the adapter changed. UserError leaves nothing behind.
int64_t export_folder(const ModelFolder& model, const FolderOptions& options);

/// Writes the weights of a run on images, the best ones where there are some, and its recipe as a folder
/// that evaluation and prediction open as they do the run. Returns the file of the weights. Takes no
/// shard_bytes.
fs::path export_image_run(const fs::path& run, const FolderOptions& options);

}  // namespace hearth::hub
