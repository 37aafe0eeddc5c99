#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/shape.h"

namespace hearth::io {

/// A tensor in somebody else's memory.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  /// What 8-bit elements are to be multiplied by; none: nobody says.
  std::optional<float> scale = {};
};

/// Reads the safetensors format (github.com/huggingface/safetensors): a JSON header, then the bytes, without
/// holes or overlaps. UserError naming `where` and the tensor for anything else. Views point into `bytes`.
std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, std::string_view where);

/// A memory-mapped file and its tensors.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// The tensor with that name, or null.
  const TensorView* find(std::string_view name) const;
  /// The texts that its writer put beside the tensors; read again at each call.
  std::map<std::string, std::string> metadata() const;

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::vector<uint32_t> by_name_;  ///< places in tensors_
};

/// Writes tensors in the given order with `metadata` (string to string; "format" = "pt" is added). Flushed to
/// disk.
void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});
/// The same for tensors whose bytes are made when they are written: bytes_of(i) gives those of tensors[i] and
/// may end those of the one before.
void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       FunctionRef<std::span<const std::byte>(size_t)> bytes_of,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace hearth::io
