#include "backend/cpu/rows.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {
namespace {

HEARTH_CLONES void clamp_below(float* row, int64_t count) {
  for (int64_t i = 0; i < count; ++i) row[i] = row[i] < 0.0F ? 0.0F : row[i];
}

constexpr int64_t kBlock = 16;

void pack_straight(const float* b, int64_t k, int64_t n, int64_t panel, float* out) {
  const int64_t first = panel * kPanel;
  const int64_t columns = std::min(kPanel, n - first);
  for (int64_t p = 0; p < k; ++p) {
    std::memcpy(out + p * kPanel, b + p * n + first, static_cast<size_t>(columns) * sizeof(float));
    std::fill(out + p * kPanel + columns, out + (p + 1) * kPanel, 0.0F);
  }
}

void pack_transposed(const float* b, int64_t k, int64_t n, int64_t panel, float* out) {
  const int64_t first = panel * kPanel;
  const int64_t columns = std::min(kPanel, n - first);
  if (columns < kPanel) std::fill(out, out + k * kPanel, 0.0F);
  simd().transpose(b + first * k, k, columns, k, out, kPanel);
}

}  // namespace

HEARTH_CLONES void add_row(const float* in, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += in[i];
}

HEARTH_CLONES void add_row(const float* in, double* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += static_cast<double>(in[i]);
}

HEARTH_CLONES void scale_row(const float* in, float factor, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = factor * in[i];
}

void finish_row(float* row, int64_t count, const float* bias, const float* residual, bool relu) {
  if (bias != nullptr) add_row(bias, row, count);
  if (residual != nullptr) add_row(residual, row, count);
  if (relu) clamp_below(row, count);
}

int64_t panel_floats(int64_t k, int64_t n) { return round_up(n, kPanel) * k; }

void pack_panels(DType dtype, const void* b, int64_t k, int64_t n, bool transposed, float* panels,
                 float* scratch, ThreadPool& threads) {
  const float* wide = static_cast<const float*>(b);
  if (dtype != DType::f32) {
    widen(dtype, b, k * n, scratch, threads);
    wide = scratch;
  }
  threads.parallel_for(
      (n + kPanel - 1) / kPanel, std::max<int64_t>(1, 16384 / (k * kPanel)), [&](Range range) {
        for (int64_t panel = range.begin; panel < range.end; ++panel) {
          (transposed ? pack_transposed : pack_straight)(wide, k, n, panel, panels + panel * k * kPanel);
        }
      });
}

void transpose(const float* in, int64_t rows, int64_t columns, float* out, ThreadPool& threads) {
  threads.parallel_for((columns + kBlock - 1) / kBlock, std::max<int64_t>(1, 1024 / rows), [&](Range range) {
    const int64_t first = range.begin * kBlock;
    const int64_t last = std::min(range.end * kBlock, columns);
    simd().transpose(in + first, columns, rows, last - first, out + first * rows, rows);
  });
}

}  // namespace hearth::cpu
