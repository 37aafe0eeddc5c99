#pragma once

#include "backend/cpu/convert.h"
#include "ops/support.h"

namespace hearth::ops {

/// Shape of an array [batch * time, width] whose samples have `time` rows each; row i of a modulation [batch,
/// width] applies to all rows of sample i. Sums over a sample's rows are split into parts of kPartRows rows.
struct SampleRows {
  static constexpr int64_t kPartRows = 64;

  DType dtype;
  int64_t batch, time, width;

  /// Derives the shape from the types of x [N, D] and of its modulation [B, D].
  SampleRows(const Type& x, const Type& modulation)
      : dtype(x.dtype), batch(modulation.shape[0]), time(x.shape[0] / batch), width(x.shape[1]) {}

  int64_t parts_of_sample() const { return (time + kPartRows - 1) / kPartRows; }
  int64_t num_parts() const { return batch * parts_of_sample(); }
  /// Returns the range of rows of x in a part.
  Range rows_of_part(int64_t part) const {
    const int64_t sample = part / parts_of_sample(), first = part % parts_of_sample() * kPartRows;
    return {sample * time + first, sample * time + std::min(first + kPartRows, time)};
  }
  /// Returns the floats of a scratch buffer of `slots` rows; 0 for dtype f32, which needs no copies.
  int64_t scratch_floats(int64_t slots) const { return dtype == DType::f32 ? 0 : slots * width; }
  /// Returns a row as f32: the row itself, or a copy in row `slot` of `scratch`.
  const float* read(const void* data, int64_t row, float* scratch, int64_t slot) const {
    return cpu::as_f32(dtype, data, row * width, width, scratch + scratch_floats(slot));
  }
  float* to_write(void* data, int64_t row, float* scratch, int64_t slot) const {
    return run_to_write(dtype, data, row * width, scratch + scratch_floats(slot));
  }
  /// Stores a row that the caller has written to the result of to_write(), converted to the dtype if needed.
  void store(const float* result, void* data, int64_t row) const {
    cpu::store_f32(dtype, result, data, row * width, width);
  }

  /// Sums the partial sums of each sample and writes them to out [batch, width], of this dtype. The row of
  /// part i is at parts + i * stride (in floats).
  void add_parts(const float* parts, int64_t stride, void* out, ThreadPool& threads) const;
};

/// Returns an error message unless input 0 is x [N, D] and inputs 1 to `count` are its modulations; empty if
/// valid.
std::string modulation_fault(const NodeView& node, size_t count);

}  // namespace hearth::ops
