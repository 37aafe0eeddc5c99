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

/// How GGUF stores elements, under its numbers. q8_0: blocks of 32 of one f16 scale and 32 signed bytes.
enum class GgufType : uint32_t { f32 = 0, f16 = 1, q8_0 = 8, bf16 = 30 };

inline constexpr int64_t kQ8Block = 32;

/// Bytes of a row; of q8_0 only for whole blocks.
int64_t gguf_row_bytes(GgufType type, int64_t columns);

/// Rounds to q8_0 as ggml does it, bit for bit: scale = largest / 127. `values` are whole blocks.
void quantize_q8_0(std::span<const float> values, std::byte* out);

/// A value of the metadata.
using GgufValue = std::variant<bool, uint32_t, float, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

/// A tensor to be written; `shape` has the rows first, as elsewhere (GGUF counts axes the other way round).
struct GgufTensor {
  std::string name;
  GgufType type = GgufType::f32;
  Shape shape;

  int64_t num_bytes() const;
};

/// Writes a file in GGUF 3 (ggml's docs/gguf.md), data aligned to 32 bytes, flushed to disk. bytes_of(i)
/// gives the bytes of tensors[i] and may end those of the one before.
void write_gguf(const fs::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors,
                FunctionRef<std::span<const std::byte>(size_t)> bytes_of);

}  // namespace hearth::io
