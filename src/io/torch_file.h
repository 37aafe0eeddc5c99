#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace hearth::io {

/// Tensors of a state dict. Views point into the file's bytes, or into `copies` for tensors that are stored
/// in another order than row-major.
struct TorchTensors {
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>> copies;  ///< together at most as large as the file
};

/// Reads the state dict in a file of torch.save (a zip archive since PyTorch 1.6) without executing anything.
/// In a checkpoint it is the dictionary under "model", "state_dict" or a key like these, or the only one that
/// has tensors; the prefixes "module." and "_orig_mod." of all names are removed. UserError starting with
/// `where` for names that tensors do not need, damage, and tensors outside their storage.
TorchTensors parse_torch_file(std::span<const std::byte> bytes, std::string_view where);

/// A memory-mapped file of torch.save and its tensors.
class TorchFile {
 public:
  explicit TorchFile(const fs::path& path);
  const std::vector<TensorView>& tensors() const { return read_.tensors; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
  TorchTensors read_;
};

}  // namespace hearth::io
