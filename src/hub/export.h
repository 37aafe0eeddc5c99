#pragma once

#include "hub/model_folder.h"
#include "hub/shards.h"

namespace hearth::hub {

/// Writes a model, merged with its adapter, as a transformers folder: weights, config.json and tokenizer.
/// Holds one tensor in memory at a time. Returns the number of tensors that the adapter changed. If it throws
/// a UserError, the folder is not created.
int64_t export_folder(const ModelFolder& model, const FolderOptions& options);

/// Writes the weights of an image run (the best ones if it has any, otherwise the last ones) and its recipe
/// to a folder that `hearth eval` and `hearth predict` accept as a run. Returns the weights file that was
/// copied. options.shard_bytes must be 0.
fs::path export_image_run(const fs::path& run, const FolderOptions& options);

}  // namespace hearth::hub
