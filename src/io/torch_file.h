#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace hearth::io {

/// Tensors of a state dict. Their views point into the file's bytes, or into `copies` for tensors that the
/// file does not store in row-major order.
struct TorchTensors {
  std::vector<TensorView> tensors;
  std::vector<std::vector<std::byte>>
      copies;  ///< copies in row-major order; their total size is at most that of the file
};

/// Reads the state dict in a file of torch.save (a zip archive since PyTorch 1.6) without executing anything.
/// In a training checkpoint, the state dict is the dictionary under "model", "state_dict" or a similar key,
/// or the only dictionary with tensors. Removes the prefixes "module." and "_orig_mod." if all names have
/// them. Throws a UserError starting with `where` for Python names outside the allowed list, damage, and
/// tensors outside their storage.
TorchTensors parse_torch_file(std::span<const std::byte> bytes, std::string_view where);

/// A memory-mapped file of torch.save, and its tensors.
class TorchFile {
 public:
  explicit TorchFile(const fs::path& path);
  /// Tensors sorted by name; views are valid as long as this object.
  const std::vector<TensorView>& tensors() const { return read_.tensors; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  MappedFile file_;
  TorchTensors read_;
};

}  // namespace hearth::io
