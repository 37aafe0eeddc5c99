#pragma once

#include <cstddef>
#include <span>

#include "io/ggml_blocks.h"

namespace hearth::io {

/// True for the block types that quantize_gguf() writes: q4_0, q5_0, q5_1, q8_0, q4_K, q5_K and q6_K.
bool is_written_in_blocks(GgufType type);

/// Maximum magnitude of values for which all scales of the type are finite in f16.
float max_magnitude(GgufType type);

/// Quantizes values to adjacent blocks with the algorithms of ggml's quantize_row_*_ref, without an
/// importance matrix. The number of values must be a multiple of the elements per block.
void quantize_gguf(GgufType type, std::span<const float> values, std::byte* out);

}  // namespace hearth::io
