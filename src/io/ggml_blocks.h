#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace hearth::io {

/// Element types of GGUF tensors, with their numbers in the file. q4_0 and q8_0 are blocks of
/// base/block_format.h: an f16 scale followed by the codes.
enum class GgufType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_K = 10,
  q3_K = 11,
  q4_K = 12,
  q5_K = 13,
  q6_K = 14,
  bf16 = 30
};

/// Name of a type as in llama.cpp ("Q4_K"), and the number of elements and bytes of its blocks; a block of
/// f32, f16 or bf16 is one element.
struct GgufFormat {
  GgufType type;
  std::string_view name;
  int64_t block = 1;
  int64_t block_bytes = 1;
};

/// Returns the format of a type number; null if it is not supported.
const GgufFormat* find_gguf_format(uint32_t number);
/// Returns llama.cpp's name of a type that is not supported ("IQ4_XS"); empty for an unknown number.
std::string_view unsupported_gguf_type(uint32_t number);

/// Dequantizes adjacent blocks of a quantized type to `values`, with the same bits as gguf-py. Blocks need no
/// alignment.
void dequantize_gguf(GgufType type, const std::byte* blocks, std::span<float> values);

}  // namespace hearth::io
