#include "ops/denoise/sample_rows.h"

#include "backend/cpu/rows.h"

namespace hearth::ops {

void SampleRows::add_parts(const float* parts, int64_t stride, void* out, ThreadPool& threads) const {
  constexpr int64_t kColumns = 256;
  const int64_t tiles = (width + kColumns - 1) / kColumns, count = parts_of_sample();
  threads.parallel_for(batch * tiles, std::max<int64_t>(1, kGrain / (kColumns * count)), [&](Range range) {
    alignas(64) double sum[kColumns];
    alignas(64) float rounded[kColumns];
    for (int64_t i = range.begin; i < range.end; ++i) {
      const int64_t sample = i / tiles, first = i % tiles * kColumns,
                    columns = std::min(kColumns, width - first);
      std::fill_n(sum, columns, 0.0);
      for (int64_t part = sample * count; part < (sample + 1) * count; ++part)
        cpu::add_row(parts + part * stride + first, sum, columns);
      std::transform(sum, sum + columns, rounded, [](double value) { return static_cast<float>(value); });
      cpu::store_f32(dtype, rounded, out, sample * width + first, columns);
    }
  });
}

std::string modulation_fault(const NodeView& node, size_t count) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || x.shape[1] < 1)
    return fmt::format("expected x to be floating [N, D], got {}", to_string(x));
  const Type& first = node.in_type(1);
  for (size_t i = 1; i <= count; ++i) {
    const Type& type = node.in_type(i);
    if (type.dtype != x.dtype || type.shape.rank() != 2 || type.shape[0] < 1 || type.shape[1] != x.shape[1] ||
        x.shape[0] % type.shape[0] != 0 || type != first)
      return fmt::format("expected the modulations to be {}[B, {}], where B divides {}, got {}",
                         dtype_name(x.dtype), x.shape[1], x.shape[0], to_string(type));
  }
  return "";
}

}  // namespace hearth::ops
