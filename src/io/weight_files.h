#pragma once

#include <vector>

#include "io/safetensors.h"

namespace hearth::io {

/// The weights of a model: one safetensors file, or a folder with model.safetensors or with shards under
/// model.safetensors.index.json, all memory-mapped. UserError for a missing shard, or a tensor that the index
/// places where it is not.
class WeightFiles {
 public:
  explicit WeightFiles(const fs::path& file_or_folder);
  /// Views of every tensor; they live as long as this.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  /// The tensor with that name, or null.
  const TensorView* find(std::string_view name) const;

 private:
  void open_shards(const fs::path& index);

  std::vector<SafetensorsFile> files_;
  std::vector<TensorView> tensors_;  ///< by name
};

}  // namespace hearth::io
