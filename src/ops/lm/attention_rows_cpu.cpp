#include "ops/lm/attention_rows_cpu.h"

#include <algorithm>
#include <bit>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"

namespace hearth::cpu {
namespace {

/// Distance in rows of software prefetches, needed because the hardware prefetcher does not follow short rows
/// with a large stride.
constexpr int64_t kPrefetchRows = 12;

HEARTH_CLONES void copy_rows(const float* in, int64_t in_row, float* out, int64_t out_row, int64_t rows,
                             int64_t size) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* from = in + r * in_row;
    float* to = out + r * out_row;
    for (int64_t c = 0; c < size; c += 16) __builtin_prefetch(from + kPrefetchRows * in_row + c);
    for (int64_t c = 0; c < size; ++c) to[c] = from[c];
  }
}

/// Copies rows of kPanel floats to a panel; the constant width lets the compiler unroll the copy.
HEARTH_CLONES void copy_panel(const float* in, int64_t in_row, float* out, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < kPanel; ++c) out[r * kPanel + c] = in[r * in_row + c];
  }
}

}  // namespace

Products Products::of(DType dtype, int64_t head_size) {
  return {dtype == DType::bf16 && head_size % 2 == 0 && simd().gemm_pairs != nullptr};
}

void join_tokens(const uint16_t* rows, int64_t row, int64_t count, int64_t size, float* words,
                 int64_t word_row) {
  for (int64_t t = 0; t < count; t += 2, rows += 2 * row, words += word_row) {
    if (t + 1 < count) {
      join_row(rows, rows + row, size, words);
    } else {
      for (int64_t c = 0; c < size; ++c) words[c] = std::bit_cast<float>(uint32_t{rows[c]});
    }
  }
}

HeadRows::View HeadRows::view(const void* data, int64_t count, Products products, float* scratch) const {
  const int64_t per_word = products.pairs ? 2 : 1;
  if (products.pairs || dtype == DType::f32)
    return {static_cast<const float*>(data) + (first * width + column) / per_word, width / per_word};
  load(data, 0, count, scratch, size);
  return {scratch, size};
}

HeadRows::View HeadRows::joined(const void* data, int64_t count, Products products, float* scratch) const {
  if (!products.pairs) return view(data, count, products, scratch);
  load_joined(data, 0, count, scratch, size);
  return {scratch, size};
}

void HeadRows::load_words(const void* data, int64_t row, int64_t count, Products products, float* out,
                          int64_t out_row) const {
  if (!products.pairs) return load(data, row, count, out, out_row);
  const View rows = view(data, 0, products, nullptr);
  copy_rows(rows.data + row * rows.row, rows.row, out, out_row, count, size / 2);
}

void HeadRows::load_joined(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const {
  const auto* from = static_cast<const uint16_t*>(data) + (first + row) * width + column;
  join_tokens(from, width, count, size, out, out_row);
}

void HeadRows::load(const void* data, int64_t row, int64_t count, float* out, int64_t out_row) const {
  const int64_t at = (first + row) * width + column;
  if (dtype == DType::f32)
    return copy_rows(static_cast<const float*>(data) + at, width, out, out_row, count, size);
  for (int64_t r = 0; r < count; ++r) load_f32(dtype, data, at + r * width, size, out + r * out_row);
}

void HeadRows::prefetch(const void* data, int64_t count) const {
  const int64_t bytes = dtype_bytes(dtype);
  const auto* from = static_cast<const char*>(data) + (first * width + column) * bytes;
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t b = 0; b < size * bytes; b += 64) __builtin_prefetch(from + r * width * bytes + b);
  }
}

void HeadRows::store(const float* in, int64_t in_row, int64_t row, int64_t count, void* data) const {
  for (int64_t r = 0; r < count; ++r)
    store_f32(dtype, in + r * in_row, data, (first + row + r) * width + column, size);
}

void pack_keys(HeadRows::View rows, int64_t time, int64_t size, float* panels) {
  for (int64_t j = 0; j < time; j += kPanel) {
    simd().transpose(rows.data + j * rows.row, rows.row, std::min(kPanel, time - j), size, panels + j * size,
                     kPanel);
  }
}

void pack_columns(HeadRows::View rows, int64_t time, int64_t size, float* panels) {
  for (int64_t c = 0; c < size; c += kPanel) {
    const int64_t columns = std::min(kPanel, size - c);
    if (columns == kPanel) {
      copy_panel(rows.data + c, rows.row, panels + c * time, time);
    } else {
      copy_rows(rows.data + c, rows.row, panels + c * time, kPanel, time, columns);
    }
  }
}

}  // namespace hearth::cpu
