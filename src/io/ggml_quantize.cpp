// Quantizers of ggml-quants.c. A K-quant has super-blocks of 256 elements, whose parts of 16 or 32 elements
// have scales (and mins) that are themselves quantized. The scale of a part is the best of several
// candidates: each rounds the elements on a slightly different grid and then fits scale (and min) to the
// codes by weighted least squares.
#include "io/ggml_quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/block_format.h"
#include "base/dtype.h"
#include "base/error.h"
#include "io/gguf.h"

namespace hearth::io {
namespace {

constexpr int64_t kSuperElements = 256;
/// Parts whose largest magnitude is below are stored as zeros (GROUP_MAX_EPS).
constexpr float kMinMagnitude = 1e-15F;

using Codes = std::array<uint8_t, kSuperElements>;

/// Returns x rounded to an integer in [low, high], ties to even. Adding 1.5 * 2^23 rounds at the last bit of
/// the mantissa.
int round_within(float x, int low, int high) {
  constexpr float kMagic = 12582912;
  const float bounded = std::clamp(x, static_cast<float>(low), static_cast<float>(high));
  return static_cast<int>((bounded + kMagic) - kMagic);
}

/// Stores a value as f16 and returns the stored value.
float store_f16(float value, std::byte* out) {
  const f16 stored = to_f16(value);
  std::memcpy(out, &stored, sizeof stored);
  return to_f32(stored);
}

std::byte to_byte(int value) { return static_cast<std::byte>(value); }

/// Packs codes of 5 bits of a block of 32: bit 4 of element i is bit i of the first four bytes; the other
/// bits of elements i and i + 16 are in one byte.
void pack_five_bits(const Codes& codes, std::byte* out) {
  uint32_t high = 0;
  for (size_t i = 0; i < 32; ++i) high |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(out, &high, sizeof high);
  for (size_t i = 0; i < 16; ++i) out[4 + i] = to_byte((codes[i] & 15) | (codes[i + 16] & 15) << 4);
}

/// value = scale * (code - 16); the first element with the largest magnitude has code 0.
void write_q5_0(const float* x, std::byte* out) {
  const float scale = extreme_of(x) / -16, inverse = inverse_of_scale(scale);
  store_f16(scale, out);
  Codes codes{};
  for (size_t i = 0; i < kBlockElements; ++i)
    codes[i] = static_cast<uint8_t>(std::fmin(31.0F, std::trunc(std::fma(x[i], inverse, 16.5F))));
  pack_five_bits(codes, out + 2);
}

/// value = scale * code + min
void write_q5_1(const float* x, std::byte* out) {
  const auto [min, max] = std::minmax_element(x, x + kBlockElements);
  const float scale = (*max - *min) / 31, inverse = inverse_of_scale(scale);
  store_f16(scale, out);
  store_f16(*min, out + 2);
  Codes codes{};
  for (size_t i = 0; i < kBlockElements; ++i) {
    const float product = (x[i] - *min) * inverse;
    codes[i] = static_cast<uint8_t>(std::fmin(31.0F, std::trunc(product + 0.5F)));
  }
  pack_five_bits(codes, out + 4);
}

/// Returns the scale of a part of Q6_K for codes in [-32, 31] (make_qx_quants). Errors are weighted by x^2.
float fit_scale(const float* x) {
  constexpr int kHalf = 32, kSteps = 9, kCount = 16;
  float extreme = 0;
  for (int i = 0; i < kCount; ++i)
    if (std::fabs(x[i]) > std::fabs(extreme)) extreme = x[i];
  if (std::fabs(extreme) < kMinMagnitude) return 0;
  float scale = 0, best = 0;
  // Step 0 first: only better candidates replace it.
  for (int candidate = 0; candidate <= 2 * kSteps; ++candidate) {
    const int step = candidate == 0 ? 0 : candidate <= kSteps ? candidate - kSteps - 1 : candidate - kSteps;
    const float inverse = -(kHalf + 0.1F * static_cast<float>(step)) / extreme;
    float sum_xl = 0, sum_l2 = 0;
    for (int i = 0; i < kCount; ++i) {
      const auto level = static_cast<float>(round_within(inverse * x[i], -kHalf, kHalf - 1));
      const float weight = x[i] * x[i];
      sum_xl += weight * x[i] * level;
      sum_l2 += weight * level * level;
    }
    if (sum_l2 <= 0 || (candidate > 0 && sum_xl * sum_xl <= best * sum_l2)) continue;
    scale = sum_xl / sum_l2;
    best = scale * sum_xl;
  }
  return scale;
}

/// Packs 256 codes of 6 bits: 128 bytes with the lower 4 bits, then 64 bytes with the upper 2.
void pack_six_bits(const Codes& codes, std::byte* out) {
  for (size_t half = 0; half < 2; ++half) {
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t* at = codes.data() + half * 128 + i;
      out[half * 64 + i] = to_byte((at[0] & 15) | (at[64] & 15) << 4);
      out[half * 64 + 32 + i] = to_byte((at[32] & 15) | (at[96] & 15) << 4);
      out[128 + half * 32 + i] =
          to_byte(at[0] >> 4 | (at[32] >> 4) << 2 | (at[64] >> 4) << 4 | (at[96] >> 4) << 6);
    }
  }
}

void write_q6_k(const float* x, std::byte* out) {
  std::array<float, 16> scales;
  float extreme = 0;
  for (size_t part = 0; part < scales.size(); ++part) {
    scales[part] = fit_scale(x + part * 16);
    if (std::fabs(scales[part]) > std::fabs(extreme)) extreme = scales[part];
  }
  std::memset(out, 0, 210);
  if (std::fabs(extreme) < kMinMagnitude) return;
  const float inverse = -128 / extreme, scale = store_f16(1 / inverse, out + 208);
  Codes codes;
  codes.fill(32);
  for (size_t part = 0; part < scales.size(); ++part) {
    const int part_code = round_within(inverse * scales[part], -128, 127);
    out[192 + part] = to_byte(part_code);
    const float step = scale * static_cast<float>(part_code);
    for (size_t i = part * 16; step != 0 && i < part * 16 + 16; ++i)
      codes[i] = static_cast<uint8_t>(round_within(x[i] / step, -32, 31) + 32);
  }
  pack_six_bits(codes, out);
}

/// value = scale * code - min, min >= 0
struct Line {
  float scale = 0, min = 0;
};

constexpr int kPart = 32;
/// Weighted sums over a part, which do not depend on the codes.
struct PartSums {
  std::array<float, kPart> weights;
  float low, high, weight = 0, x = 0;

  explicit PartSums(const float* part) : low(std::min(part[0], 0.0F)), high(part[0]) {
    float squares = 0;
    for (int i = 0; i < kPart; ++i) squares += part[i] * part[i];
    const float average = std::sqrt(squares / kPart);
    for (size_t i = 0; i < kPart; ++i) {
      weights[i] = average + std::fabs(part[i]);
      weight += weights[i];
      x += weights[i] * part[i];
      low = std::min(low, part[i]);
      high = std::max(high, part[i]);
    }
  }
};

float error_of(const float* x, const PartSums& sums, const Line& line,
               const std::array<float, kPart>& codes) {
  float error = 0;
  for (size_t i = 0; i < kPart; ++i) {
    const float difference = line.scale * codes[i] - line.min - x[i];
    error += sums.weights[i] * (difference * difference);
  }
  return error;
}

/// Returns the line through (codes, x) with the smallest weighted error and min >= 0; nullopt if all codes
/// are equal.
std::optional<Line> fit_line(const float* x, const PartSums& sums, const std::array<float, kPart>& codes) {
  float sum_l = 0, sum_l2 = 0, sum_xl = 0;
  for (size_t i = 0; i < kPart; ++i) {
    sum_l += sums.weights[i] * codes[i];
    sum_l2 += sums.weights[i] * codes[i] * codes[i];
    sum_xl += sums.weights[i] * codes[i] * x[i];
  }
  const float determinant = sums.weight * sum_l2 - sum_l * sum_l;
  if (determinant <= 0) return std::nullopt;
  const Line line{.scale = (sums.weight * sum_xl - sums.x * sum_l) / determinant,
                  .min = (sum_l * sum_xl - sum_l2 * sums.x) / determinant};
  return line.min < 0 ? Line{.scale = sum_xl / sum_l2} : line;
}

/// Returns scale and min of a part of Q4_K or Q5_K for codes in [0, max_code] (make_qkx2_quants): the best of
/// the grid from the smallest to the largest element and of lines fitted to grids of `first_step` + 0.1 i
/// more codes.
Line fit_part(const float* x, int max_code, float first_step, int num_steps) {
  const PartSums sums(x);
  if (sums.high == sums.low) return {.min = -sums.low};
  const auto codes_of = [&](float num_codes) {
    const float inverse = num_codes / (sums.high - sums.low);
    std::array<float, kPart> codes;
    for (size_t i = 0; i < kPart; ++i)
      codes[i] = static_cast<float>(round_within(inverse * (x[i] - sums.low), 0, max_code));
    return codes;
  };
  const auto all = static_cast<float>(max_code);
  Line best{.scale = 1 / (all / (sums.high - sums.low)), .min = -sums.low};
  float best_error = error_of(x, sums, best, codes_of(all));
  for (int step = 0; step <= num_steps; ++step) {
    const auto codes = codes_of(first_step + 0.1F * static_cast<float>(step) + all);
    const std::optional<Line> line = fit_line(x, sums, codes);
    const float error = line ? error_of(x, sums, *line, codes) : best_error;
    if (!(error < best_error)) continue;
    best = *line;
    best_error = error;
  }
  return best;
}

/// Packs scales and mins of 6 bits of 8 parts into 12 bytes.
void pack_part_scales(const std::array<int, 8>& scales, const std::array<int, 8>& mins, std::byte* out) {
  for (size_t i = 0; i < 4; ++i) {
    const int scale = scales[i + 4], min = mins[i + 4];
    out[i] = to_byte(scales[i] | (scale >> 4) << 6);
    out[i + 4] = to_byte(mins[i] | (min >> 4) << 6);
    out[i + 8] = to_byte((scale & 15) | (min & 15) << 4);
  }
}

/// Writes the scales of a super-block of Q4_K or Q5_K and returns the codes.
Codes write_scales(const float* x, int max_code, float first_step, int num_steps, std::byte* out) {
  std::array<Line, 8> lines;
  float max_scale = 0, max_min = 0;
  for (size_t part = 0; part < lines.size(); ++part) {
    lines[part] = fit_part(x + part * kPart, max_code, first_step, num_steps);
    max_scale = std::max(max_scale, lines[part].scale);
    max_min = std::max(max_min, lines[part].min);
  }
  const float inverse_scale = max_scale > 0 ? 63 / max_scale : 0,
              inverse_min = max_min > 0 ? 63 / max_min : 0;
  const float scale = store_f16(max_scale / 63, out), min = store_f16(max_min / 63, out + 2);
  std::array<int, 8> scales, mins;
  Codes codes{};
  for (size_t part = 0; part < lines.size(); ++part) {
    scales[part] = round_within(inverse_scale * lines[part].scale, 0, 63);
    mins[part] = round_within(inverse_min * lines[part].min, 0, 63);
    const float step = scale * static_cast<float>(scales[part]),
                offset = min * static_cast<float>(mins[part]);
    for (size_t i = part * kPart; step != 0 && i < (part + 1) * kPart; ++i)
      codes[i] = static_cast<uint8_t>(round_within((x[i] + offset) / step, 0, max_code));
  }
  pack_part_scales(scales, mins, out + 4);
  return codes;
}

/// Packs the lower 4 bits of 256 codes: 32 bytes per 64 elements.
void pack_four_bits(const Codes& codes, std::byte* out) {
  for (size_t i = 0; i < 128; ++i) {
    const uint8_t* at = codes.data() + i / 32 * 64 + i % 32;
    out[i] = to_byte((at[0] & 15) | (at[32] & 15) << 4);
  }
}

void write_q4_k(const float* x, std::byte* out) {
  pack_four_bits(write_scales(x, 15, -1, 20, out), out + 16);
}

void write_q5_k(const float* x, std::byte* out) {
  const Codes codes = write_scales(x, 31, -0.5F, 15, out);
  for (size_t i = 0; i < 32; ++i) {
    int high = 0;
    for (size_t part = 0; part < 8; ++part) high |= (codes[part * 32 + i] >> 4) << part;
    out[16 + i] = to_byte(high);
  }
  pack_four_bits(codes, out + 48);
}

struct Writer {
  GgufType type;
  void (*write)(const float* x, std::byte* out);
  /// Lower bound of the largest magnitude that the scale kMaxF16 represents, divided by kMaxF16.
  float range;
};
constexpr std::array kWriters = {
    Writer{GgufType::q5_0, write_q5_0, 16}, Writer{GgufType::q5_1, write_q5_1, 1},
    Writer{GgufType::q4_K, write_q4_k, 63}, Writer{GgufType::q5_K, write_q5_k, 63},
    Writer{GgufType::q6_K, write_q6_k, 2048}};

const Writer* find_writer(GgufType type) {
  const auto found = std::ranges::find(kWriters, type, &Writer::type);
  return found == kWriters.end() ? nullptr : &*found;
}

}  // namespace

bool is_written_in_blocks(GgufType type) {
  return block_format(type) != BlockFormat::none || find_writer(type) != nullptr;
}

float max_magnitude(GgufType type) {
  if (const BlockFormat format = block_format(type); format != BlockFormat::none)
    return kMaxF16 / std::abs(block_scale(format, 1));
  const Writer* writer = find_writer(type);
  HEARTH_CHECK(writer != nullptr);
  return kMaxF16 * writer->range;
}

void quantize_gguf(GgufType type, std::span<const float> values, std::byte* out) {
  if (const BlockFormat format = block_format(type); format != BlockFormat::none)
    return quantize_blocks(format, values, out);
  const Writer* writer = find_writer(type);
  HEARTH_CHECK(writer != nullptr);
  const GgufFormat& format = *find_gguf_format(static_cast<uint32_t>(type));
  HEARTH_CHECK(std::ssize(values) % format.block == 0);
  for (int64_t i = 0; i < std::ssize(values) / format.block; ++i)
    writer->write(values.data() + i * format.block, out + i * format.block_bytes);
}

}  // namespace hearth::io
