#pragma once

#include "base/file.h"

namespace hearth::train {

struct MergeOptions {
  fs::path adapter;  ///< a folder with adapter_model.safetensors, or the file of weights
  fs::path model;    ///< the base model; empty: base_model_name_or_path of adapter_config.json
  fs::path out;      ///< a folder that is not there yet, or empty
  int num_threads = 1;
};

/// Writes base + scale * B * A as a transformers folder: the base's files and dtypes, one tensor in memory at
/// a time. Returns how many tensors the adapter changed. UserError leaves nothing behind.
int64_t merge_adapter(const MergeOptions& options);

}  // namespace hearth::train
