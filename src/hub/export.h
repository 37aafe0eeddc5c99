#pragma once

#include <string>

#include "base/output.h"
#include "hub/model_folder.h"
#include "hub/shards.h"

namespace hearth::hub {

/// Copies the files of a model other than weights to a folder: configuration, tokenizer and chat template.
void copy_companions(const ModelFolder& model, const fs::path& to);

/// Writes a model, merged with its adapter, as a transformers folder: weights, config.json and tokenizer.
/// Holds one tensor in memory at a time. Returns the number of tensors that the adapter changed. If it throws
/// a UserError, the folder is not created.
int64_t export_folder(const ModelFolder& model, const FolderOptions& options);

/// Writes a model with `weights`, which were opened from it, as export_folder() does, and commits `folder`.
/// `replace`: tensors that are written in another form. `quantization`: JSON of quantization_config in
/// config.json; empty: none.
void write_model(const ModelFolder& model, ModelWeights& weights, const FolderOptions& options,
                 NewFolder& folder, const Replace& replace = {}, const std::string& quantization = "");

/// Writes the weights of an image run (the best ones if it has any, otherwise the last ones) and its recipe
/// to a folder that `hearth eval` and `hearth predict` accept as a run. Returns the weights file that was
/// copied. options.shard_bytes must be 0.
fs::path export_image_run(const fs::path& run, const FolderOptions& options);

}  // namespace hearth::hub
