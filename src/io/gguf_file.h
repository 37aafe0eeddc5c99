#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"
#include "io/safetensors.h"

namespace hearth::io {

/// Contents of a GGUF file, version 2 or 3 (ggml's docs/gguf.md): metadata and tensors.
struct GgufContents {
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string>>;
  std::map<std::string, Value, std::less<>> metadata;
  /// Tensors with llama.cpp's names and row-major shapes. Quantized ones have the dtype bf16 and a decoder.
  std::vector<TensorView> tensors;
};

/// Parses a GGUF file. A float of the metadata becomes the double with the same shortest decimal digits, so
/// that 1e-6 stays 1e-6. Throws a UserError naming `where` if the file is damaged, big-endian, one part of a
/// split model, or has a tensor type that is not supported. Views point into `bytes`.
GgufContents parse_gguf(std::span<const std::byte> bytes, std::string_view where);

/// True if the bytes start with kGgufMagic.
bool is_gguf(std::span<const std::byte> bytes);

/// A memory-mapped GGUF file.
class GgufFile {
 public:
  explicit GgufFile(const fs::path& path);
  const fs::path& path() const { return path_; }
  /// Tensors in the order of the file; views are valid as long as this object.
  const std::vector<TensorView>& tensors() const { return contents_.tensors; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// Returns the value of a metadata key; null if the file does not have it. Throws a UserError if the value
  /// has another type.
  template <typename T>
  const T* find(std::string_view key) const {
    const auto found = contents_.metadata.find(key);
    if (found == contents_.metadata.end()) return nullptr;
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) refuse_type(key);
    return value;
  }
  /// Returns the value of a key; throws a UserError if the file does not have it.
  template <typename T>
  const T& at(std::string_view key) const {
    const T* value = find<T>(key);
    if (value == nullptr) refuse_missing(key);
    return *value;
  }

 private:
  [[noreturn]] void refuse_type(std::string_view key) const;
  [[noreturn]] void refuse_missing(std::string_view key) const;

  fs::path path_;
  MappedFile file_;
  GgufContents contents_;
};

/// Returns the double with the shortest decimal digits that identify the float.
double shortest(float value);

}  // namespace hearth::io
