// Block formats of ggml-quants.c. A block of 32 elements has one scale. A super-block of 256 elements
// (K-quants) has quantized scales of its parts. Products and sums are separate statements, because
// -ffp-contract=on fuses only within a statement, and gguf-py uses no fused multiply-add.
#include "io/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/block_format.h"
#include "base/dtype.h"
#include "base/error.h"

namespace hearth::io {
namespace {

constexpr int64_t kBlock = kBlockElements, kSuperBlock = 256;

constexpr std::array kFormats = {GgufFormat{GgufType::f32, "F32", 1, 4},
                                 GgufFormat{GgufType::f16, "F16", 1, 2},
                                 GgufFormat{GgufType::bf16, "BF16", 1, 2},
                                 GgufFormat{GgufType::q4_0, "Q4_0", kBlock, 18},
                                 GgufFormat{GgufType::q4_1, "Q4_1", kBlock, 20},
                                 GgufFormat{GgufType::q5_0, "Q5_0", kBlock, 22},
                                 GgufFormat{GgufType::q5_1, "Q5_1", kBlock, 24},
                                 GgufFormat{GgufType::q8_0, "Q8_0", kBlock, 34},
                                 GgufFormat{GgufType::q2_K, "Q2_K", kSuperBlock, 84},
                                 GgufFormat{GgufType::q3_K, "Q3_K", kSuperBlock, 110},
                                 GgufFormat{GgufType::q4_K, "Q4_K", kSuperBlock, 144},
                                 GgufFormat{GgufType::q5_K, "Q5_K", kSuperBlock, 176},
                                 GgufFormat{GgufType::q6_K, "Q6_K", kSuperBlock, 210}};

struct NamedNumber {
  uint32_t number;
  std::string_view name;
};
constexpr std::array kUnsupported = {
    NamedNumber{9, "Q8_1"},    NamedNumber{15, "Q8_K"},    NamedNumber{16, "IQ2_XXS"},
    NamedNumber{17, "IQ2_XS"}, NamedNumber{18, "IQ3_XXS"}, NamedNumber{19, "IQ1_S"},
    NamedNumber{20, "IQ4_NL"}, NamedNumber{21, "IQ3_S"},   NamedNumber{22, "IQ2_S"},
    NamedNumber{23, "IQ4_XS"}, NamedNumber{24, "I8"},      NamedNumber{25, "I16"},
    NamedNumber{26, "I32"},    NamedNumber{27, "I64"},     NamedNumber{28, "F64"},
    NamedNumber{29, "IQ1_M"},  NamedNumber{34, "TQ1_0"},   NamedNumber{35, "TQ2_0"},
    NamedNumber{39, "MXFP4"}};

int byte_at(const std::byte* block, int64_t index) { return static_cast<uint8_t>(block[index]); }

float half_at(const std::byte* block) {
  f16 value;
  std::memcpy(&value, block, sizeof value);
  return to_f32(value);
}

float plus(float product, float offset) { return product + offset; }

/// Returns the level of element i of a block of 32. The lower 4 bits of byte i belong to element i, the upper
/// ones to element i + 16. Bit i of `high`, if not null, is the fifth bit of element i.
int level_of_32(const std::byte* nibbles, const std::byte* high, int64_t i) {
  const int level = byte_at(nibbles, i % 16) >> (i < 16 ? 0 : 4) & 15;
  return high == nullptr ? level : level | (byte_at(high, i / 8) >> (i % 8) & 1) << 4;
}

/// Dequantizes a block with a scale, an offset if `has_offset`, and levels of 4 or 5 bits.
void read_block_32(const std::byte* block, bool has_offset, bool has_fifth_bit, float* out) {
  const float scale = half_at(block);
  const float offset = has_offset ? half_at(block + 2) : 0;
  const std::byte* rest = block + (has_offset ? 4 : 2);
  const std::byte* high = has_fifth_bit ? rest : nullptr;
  const std::byte* nibbles = has_fifth_bit ? rest + 4 : rest;
  const int zero = has_offset ? 0 : has_fifth_bit ? 16 : 8;
  for (int64_t i = 0; i < kBlock; ++i) {
    const float product = scale * static_cast<float>(level_of_32(nibbles, high, i) - zero);
    out[i] = has_offset ? plus(product, offset) : product;
  }
}

void read_q8_0(const std::byte* block, float* out) {
  const float scale = half_at(block);
  for (int64_t i = 0; i < kBlock; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block[2 + i])) * scale;
}

/// Returns two bits of element i of a super-block: each 128 elements share 32 bytes, whose bits 0 and 1
/// belong to the first 32 elements, bits 2 and 3 to the next, and so on.
int two_bits(const std::byte* bytes, int64_t i) {
  return byte_at(bytes, i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
}

void read_q2_k(const std::byte* block, float* out) {
  const std::byte* levels = block + 16;
  const float scale = half_at(block + 80), min = half_at(block + 82);
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const int both = byte_at(block, i / 16);
    const float part_scale = scale * static_cast<float>(both & 15);
    const float part_min = min * static_cast<float>(both >> 4);
    const float product = part_scale * static_cast<float>(two_bits(levels, i));
    out[i] = plus(product, -part_min);
  }
}

void read_q3_k(const std::byte* block, float* out) {
  const std::byte *high = block, *levels = block + 32, *scales = block + 96;
  const float scale = half_at(block + 108);
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const int64_t part = i / 16;
    const int lower = byte_at(scales, part % 8) >> (part / 8 * 4) & 15;
    const int upper = byte_at(scales, 8 + part % 4) >> (part / 4 * 2) & 3;
    const float part_scale = scale * static_cast<float>((lower | upper << 4) - 32);
    const int third_bit = byte_at(high, i % 32) >> (i / 32) & 1;
    out[i] = part_scale * static_cast<float>(two_bits(levels, i) - (third_bit == 0 ? 4 : 0));
  }
}

/// Scale and min of part 0 to 7 of Q4_K and Q5_K: 6 bits each in 12 bytes.
struct PartScale {
  int scale, min;
};
PartScale part_scale(const std::byte* scales, int64_t part) {
  const auto at = [&](int64_t i) { return byte_at(scales, i); };
  if (part < 4) return {at(part) & 63, at(part + 4) & 63};
  return {(at(part + 4) & 15) | (at(part - 4) >> 2 & 48), at(part + 4) >> 4 | (at(part) >> 2 & 48)};
}

/// Dequantizes Q4_K or, with a fifth bit per level in `high`, Q5_K.
void read_q4_or_q5_k(const std::byte* block, const std::byte* high, const std::byte* nibbles, float* out) {
  const float scale = half_at(block), min = half_at(block + 2);
  for (int64_t part = 0; part < 8; ++part) {
    const PartScale found = part_scale(block + 4, part);
    const float part_scale = scale * static_cast<float>(found.scale);
    const float part_min = min * static_cast<float>(found.min);
    for (int64_t i = 0; i < 32; ++i) {
      int level = byte_at(nibbles, part / 2 * 32 + i) >> (part % 2 * 4) & 15;
      if (high != nullptr) level |= (byte_at(high, i) >> part & 1) << 4;
      const float product = part_scale * static_cast<float>(level);
      out[part * 32 + i] = plus(product, -part_min);
    }
  }
}

void read_q6_k(const std::byte* block, float* out) {
  const std::byte *high = block + 128, *scales = block + 192;
  const float scale = half_at(block + 208);
  for (int64_t i = 0; i < kSuperBlock; ++i) {
    const int lower = byte_at(block, i / 128 * 64 + i % 64) >> (i % 128 / 64 * 4) & 15;
    const float part_scale = scale * static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = part_scale * static_cast<float>((lower | two_bits(high, i) << 4) - 32);
  }
}

void read_block(GgufType type, const std::byte* block, float* out) {
  switch (type) {
    case GgufType::q4_0:
    case GgufType::q4_1:
      return read_block_32(block, type == GgufType::q4_1, false, out);
    case GgufType::q5_0:
    case GgufType::q5_1:
      return read_block_32(block, type == GgufType::q5_1, true, out);
    case GgufType::q8_0:
      return read_q8_0(block, out);
    case GgufType::q2_K:
      return read_q2_k(block, out);
    case GgufType::q3_K:
      return read_q3_k(block, out);
    case GgufType::q4_K:
      return read_q4_or_q5_k(block, nullptr, block + 16, out);
    case GgufType::q5_K:
      return read_q4_or_q5_k(block, block + 16, block + 48, out);
    case GgufType::q6_K:
      return read_q6_k(block, out);
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      break;
  }
  internal_error("GGUF type {} has no blocks", static_cast<uint32_t>(type));
}

}  // namespace

const GgufFormat* find_gguf_format(uint32_t number) {
  const auto found = std::ranges::find(kFormats, static_cast<GgufType>(number), &GgufFormat::type);
  return found == kFormats.end() ? nullptr : &*found;
}

std::string_view unsupported_gguf_type(uint32_t number) {
  const auto found = std::ranges::find(kUnsupported, number, &NamedNumber::number);
  return found == kUnsupported.end() ? "" : found->name;
}

void dequantize_gguf(GgufType type, const std::byte* blocks, std::span<float> values) {
  const GgufFormat& format = *find_gguf_format(static_cast<uint32_t>(type));
  HEARTH_CHECK(std::ssize(values) % format.block == 0);
  for (int64_t i = 0; i < std::ssize(values) / format.block; ++i)
    read_block(type, blocks + i * format.block_bytes, values.data() + i * format.block);
}

}  // namespace hearth::io
