#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/function_ref.h"
#include "base/shape.h"

namespace hearth::io {

/// Element types, with their numbers in GGUF. q8_0: blocks of 32 elements with one f16 scale and 32 signed
/// bytes.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

/// Elements per block of q8_0.
inline constexpr int64_t kQ8Block = 32;

/// Returns the bytes of a row of `columns` elements. For q8_0, `columns` must be a multiple of kQ8Block.
int64_t gguf_row_bytes(GgufType type, int64_t columns);

/// Quantizes to q8_0 with the same bits as ggml: scale = max |value| / 127. The number of values must be a
/// multiple of kQ8Block.
void quantize_q8_0(std::span<const float> values, std::byte* out);

/// Value of a metadata key.
using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// Description of a tensor to write. `shape` begins with the rows; the file has the axes in reverse order, as
/// GGUF requires.
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;

  int64_t num_bytes() const;
};

/// Writes a GGUF file, version 3 (ggml's docs/gguf.md), with tensor data aligned to 32 bytes, and flushes it
/// to disk. bytes_of(i) returns the bytes of tensors[i], which must stay valid until the next call.
void write_gguf(const fs::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                FunctionRef<std::span<const std::byte>(size_t)> bytes_of);

}  // namespace hearth::io
