#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/run_files.h"
#include "io/gguf_file.h"
#include "io/safetensors.h"
#include "io/torch_file.h"

namespace hearth::io {

/// Names of weight files in transformers and diffusers folders, in order of preference. Each may be sharded,
/// with an index file NAME.index.json.
inline constexpr const char* kWeightNames[] = {kModelWeights, "diffusion_pytorch_model.safetensors",
                                               "pytorch_model.bin", "diffusion_pytorch_model.bin"};

/// Memory-mapped weights of a model: one file of safetensors, torch.save or GGUF (detected by content), or a
/// folder with one of kWeightNames or its shards. Throws a UserError if a shard is missing or lacks a tensor
/// that the index assigns to it.
class WeightFiles {
 public:
  explicit WeightFiles(const fs::path& file_or_folder);
  /// Path passed to the constructor.
  const fs::path& path() const { return path_; }
  /// Weight files in the order of their names; tensors_of(i) returns the tensors of paths()[i].
  const std::vector<fs::path>& paths() const { return paths_; }
  const std::vector<TensorView>& tensors_of(size_t file) const {
    return shown_ ? tensors_ : tensors_in(files_[file]);
  }
  /// Views of all tensors, sorted by name; valid as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::vector<std::string> names() const;
  /// True if this file was written by torch.save.
  bool is_torch(size_t file) const { return std::holds_alternative<TorchFile>(files_[file]); }
  /// Returns the GGUF file that was opened; null for other formats. The tensors have llama.cpp's names until
  /// show() is called.
  const GgufFile* gguf() const { return std::get_if<GgufFile>(&files_[0]); }
  /// Returns the metadata of the first safetensors file; empty for other formats.
  std::map<std::string, std::string> metadata() const;
  /// Releases the physical memory of a tensor's mapped pages; the next access reads them from disk again. A
  /// caller that releases each tensor after use keeps at most one tensor in memory.
  void release(const TensorView& tensor) const;
  /// Replaces the tensors that this object shows by `tensors`, as if all were in the first file; used to
  /// rename and convert tensors. Their bytes must be in the mapped files or in `memory`.
  void show(std::vector<TensorView> tensors, std::vector<std::vector<std::byte>> memory);
  /// Returns the tensor with that name; null if there is none.
  const TensorView* find(std::string_view name) const;

 private:
  using File = std::variant<SafetensorsFile, TorchFile, GgufFile>;
  const std::vector<TensorView>& open(const fs::path& path);
  static const std::vector<TensorView>& tensors_in(const File& file);
  void open_shards(const fs::path& index);
  bool is_mapped(const TensorView& tensor) const;

  fs::path path_;
  std::vector<fs::path> paths_;
  std::vector<File> files_;
  std::vector<TensorView> tensors_;  ///< sorted by name
  bool shown_ = false;
  std::vector<std::vector<std::byte>> memory_;
};

/// Returns a hash that distinguishes models without reading them completely: of the names, dtypes and shapes
/// of all tensors, and of 16 pieces of each tensor's bytes.
uint64_t fingerprint(const WeightFiles& files);

}  // namespace hearth::io
