#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/run_files.h"
#include "io/safetensors.h"
#include "io/torch_file.h"

namespace hearth::io {

/// Names of weight files in a folder of transformers or diffusers, in order of preference. Each may be
/// sharded, with an index NAME.index.json.
inline constexpr const char* kWeightNames[] = {kModelWeights, "diffusion_pytorch_model.safetensors",
                                               "pytorch_model.bin", "diffusion_pytorch_model.bin"};

/// The weights of a model: one file of safetensors or of torch.save (told apart by content), or a folder with
/// one of kWeightNames or its shards, all memory-mapped. UserError if a shard is missing, or lacks a tensor
/// that the index assigns to it.
class WeightFiles {
 public:
  explicit WeightFiles(const fs::path& file_or_folder);
  /// What was opened.
  const fs::path& path() const { return path_; }
  /// The files in the order of their names, and the tensors of each.
  const std::vector<fs::path>& paths() const { return paths_; }
  const std::vector<TensorView>& tensors_of(size_t file) const {
    return shown_ ? tensors_ : tensors_in(files_[file]);
  }
  /// Views of every tensor; they live as long as this.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::vector<std::string> names() const;
  /// True if this file was written by torch.save.
  bool is_torch(size_t file) const { return std::holds_alternative<TorchFile>(files_[file]); }
  /// Returns the metadata of the first safetensors file; empty for files of torch.save.
  std::map<std::string, std::string> metadata() const;
  /// Gives the memory of a tensor's bytes back; they are read from the disk again if they are asked for.
  /// Whoever goes through a model tensor by tensor never has more than one in memory.
  void release(const TensorView& tensor) const;
  /// Has these stand in place of the tensors of the files, as if all were in the first one: parts of their
  /// bytes or of `memory`, under any names.
  void show(std::vector<TensorView> tensors, std::vector<std::vector<std::byte>> memory);
  /// The tensor with that name, or null.
  const TensorView* find(std::string_view name) const;

 private:
  using File = std::variant<SafetensorsFile, TorchFile>;
  const std::vector<TensorView>& open(const fs::path& path);
  static const std::vector<TensorView>& tensors_in(const File& file);
  void open_shards(const fs::path& index);
  bool is_mapped(const TensorView& tensor) const;

  fs::path path_;
  std::vector<fs::path> paths_;
  std::vector<File> files_;
  std::vector<TensorView> tensors_;  ///< by name
  bool shown_ = false;
  std::vector<std::vector<std::byte>> memory_;
};

/// Tells models apart without reading them: of the names, types and shapes of all tensors, and of stretches
/// of each tensor's bytes.
uint64_t fingerprint(const WeightFiles& files);

}  // namespace hearth::io
