#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/block_format.h"
#include "base/file.h"
#include "base/function_ref.h"
#include "base/shape.h"
#include "io/ggml_blocks.h"

namespace hearth::io {

/// Returns the block format of a type that can be written; none for all other types.
BlockFormat block_format(GgufType type);

/// Returns the bytes of a row of `columns` elements, a multiple of the elements per block of the type.
int64_t gguf_row_bytes(GgufType type, int64_t columns);

/// Quantizes to blocks. The number of values must be a multiple of kBlockElements.
void quantize_blocks(BlockFormat format, std::span<const float> values, std::byte* out);

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
