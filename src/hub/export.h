#pragma once

#include "hub/model_folder.h"
#include "hub/shards.h"

namespace hearth::hub {

/// Whether a folder is that of a run on images.
bool is_image_run(const fs::path& folder);

/// Writes a model, merged with its adapter, as a transformers folder: weights, config.json and tokenizer, one
/// tensor in memory at a time. Returns how many tensors the adapter changed. UserError leaves nothing behind.
int64_t export_folder(const ModelFolder& model, const FolderOptions& options);

/// Writes the weights of a run on images, the best ones where there are some, and its recipe as a folder
/// that evaluation and prediction open as they do the run. Returns the file of the weights. Takes no
/// shard_bytes.
fs::path export_image_run(const fs::path& run, const FolderOptions& options);

}  // namespace hearth::hub
