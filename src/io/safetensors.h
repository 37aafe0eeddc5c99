#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

struct TensorView;

/// Computes the elements of a tensor that is stored in another format than a dtype, such as quantized blocks.
class TensorDecoder {
 public:
  virtual ~TensorDecoder() = default;
  /// Writes elements [from, from + values.size()) of the tensor, in row-major order. May be called from
  /// several threads.
  virtual void decode(const TensorView& view, int64_t from, std::span<float> values) const = 0;
};

/// Name, dtype and shape of a tensor, and a view of its bytes in memory that it does not own.
struct TensorView {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;
  /// Factor by which the elements of an fp8 tensor are multiplied; nullopt if the file has none.
  std::optional<float> scale = {};
  /// Decoder of `bytes`; null if these are elements of `dtype`. With a decoder, `dtype` is the dtype in which
  /// the tensor is exported.
  std::shared_ptr<const TensorDecoder> decoder = nullptr;
};

/// Parses the safetensors format (github.com/huggingface/safetensors): a JSON header, then the data without
/// gaps or overlaps. Throws a UserError naming `where` and the tensor if the file violates the format. Views
/// point into `bytes`.
std::vector<TensorView> parse_safetensors(std::span<const std::byte> bytes, std::string_view where);

/// A memory-mapped safetensors file.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const fs::path& path);
  /// Returns the tensors in the order of the header; views are valid as long as this object.
  const std::vector<TensorView>& tensors() const { return tensors_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  /// Returns the tensor with that name; null if there is none.
  const TensorView* find(std::string_view name) const;
  /// Returns the texts in the header's __metadata__. Parses the header at each call.
  std::map<std::string, std::string> metadata() const;

 private:
  MappedFile file_;
  std::vector<TensorView> tensors_;
  std::vector<uint32_t> by_name_;  ///< indices into tensors_, sorted by name
};

/// Writes tensors in the given order and flushes the file to disk. `metadata` becomes the header's
/// __metadata__; "format" = "pt" is added to it.
void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});
/// Writes tensors whose bytes are computed during writing: bytes_of(i) returns the bytes of tensors[i], which
/// must stay valid until the next call.
void write_safetensors(const fs::path& path, const std::vector<TensorView>& tensors,
                       FunctionRef<std::span<const std::byte>(size_t)> bytes_of,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace hearth::io
