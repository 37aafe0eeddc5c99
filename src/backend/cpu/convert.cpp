#include "backend/cpu/convert.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/clones.h"
#include "base/e5m2.h"
#include "base/error.h"

namespace hearth::cpu {
namespace {

HEARTH_CLONES void load_bf16(const uint16_t* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
}

HEARTH_CLONES void store_bf16(const float* in, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const uint32_t quiet = (bits >> 16) | 0x40U;
    out[i] = static_cast<uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
  }
}

/// Branch-free binary16 decode: the exponent is rebased by a multiplication, which also handles subnormals.
HEARTH_CLONES void load_f16(const uint16_t* in, float* out, int64_t count) {
  const float rebase = std::bit_cast<float>(uint32_t{(254 - 15) << 23});
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t magnitude = static_cast<uint32_t>(in[i] & 0x7fffU) << 13;
    const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * rebase);
    const uint32_t special = magnitude >= (0x7c00U << 13) ? 0x7f800000U : 0U;
    out[i] = std::bit_cast<float>(scaled | special | (static_cast<uint32_t>(in[i] & 0x8000U) << 16));
  }
}

void store_f16(const float* in, uint16_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_f16(in[i]).bits;
}

/// E5M2 is the upper byte of binary16.
void load_e5m2(const uint8_t* in, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = to_f32(f16{static_cast<uint16_t>(in[i] << 8)});
}

void store_e5m2(const float* in, uint8_t* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(to_f16(round_to_e5m2(in[i])).bits >> 8);
}

HEARTH_CLONES uint32_t largest_magnitude(const float* values, int64_t count) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU);
  return largest;
}

}  // namespace

bool all_finite(const float* values, int64_t count) { return largest_magnitude(values, count) < 0x7f800000U; }

void load_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* out) {
  const auto n = static_cast<size_t>(count);
  if (dtype == DType::f32) {
    std::memcpy(out, static_cast<const float*>(data) + offset, n * sizeof(float));
  } else if (dtype == DType::bf16) {
    load_bf16(static_cast<const uint16_t*>(data) + offset, out, count);
  } else if (dtype == DType::f16) {
    load_f16(static_cast<const uint16_t*>(data) + offset, out, count);
  } else if (dtype == DType::f8_e5m2) {
    load_e5m2(static_cast<const uint8_t*>(data) + offset, out, count);
  } else {
    internal_error("no f32 view of {}", dtype_name(dtype));
  }
}

void store_f32(DType dtype, const float* in, void* data, int64_t offset, int64_t count) {
  const auto n = static_cast<size_t>(count);
  if (dtype == DType::f32) {
    if (in != static_cast<float*>(data) + offset)
      std::memcpy(static_cast<float*>(data) + offset, in, n * sizeof(float));
  } else if (dtype == DType::bf16) {
    store_bf16(in, static_cast<uint16_t*>(data) + offset, count);
  } else if (dtype == DType::f16) {
    store_f16(in, static_cast<uint16_t*>(data) + offset, count);
  } else if (dtype == DType::f8_e5m2) {
    store_e5m2(in, static_cast<uint8_t*>(data) + offset, count);
  } else {
    internal_error("no f32 view of {}", dtype_name(dtype));
  }
}

const float* as_f32(DType dtype, const void* data, int64_t offset, int64_t count, float* scratch) {
  if (dtype == DType::f32) return static_cast<const float*>(data) + offset;
  load_f32(dtype, data, offset, count, scratch);
  return scratch;
}

void widen(DType dtype, const void* in, int64_t count, float* out, ThreadPool& threads) {
  threads.parallel_for(count, 16384, [&](Range r) { load_f32(dtype, in, r.begin, r.size(), out + r.begin); });
}

HEARTH_CLONES void join_row(const uint16_t* first, const uint16_t* second, int64_t count, float* words) {
  for (int64_t i = 0; i < count; ++i)
    words[i] = std::bit_cast<float>(static_cast<uint32_t>(first[i]) | static_cast<uint32_t>(second[i]) << 16);
}

void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words) {
  const auto* from = static_cast<const uint16_t*>(rows);
  for (int64_t p = 0; p < num_pairs; ++p)
    join_row(from + 2 * p * count, from + (2 * p + 1) * count, count, words + p * count);
}

void join_rows(const void* rows, int64_t num_pairs, int64_t count, float* words, ThreadPool& threads) {
  const auto* from = static_cast<const uint16_t*>(rows);
  threads.parallel_for(
      num_pairs, std::max<int64_t>(1, 16384 / std::max<int64_t>(1, count)), [&](Range range) {
        join_rows(from + 2 * range.begin * count, range.size(), count, words + range.begin * count);
      });
}

}  // namespace hearth::cpu
