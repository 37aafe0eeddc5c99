#pragma once

#include <algorithm>
#include <string>

#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {

/// Why inputs 0 and 1 are not floating logits [N, K] and i32 labels [N]; empty: they are.
std::string logits_fault(const NodeView& node);

/// Rows of an array that kernels take many at a time, turned round in f32, so that vectors run over the rows
/// however short these are.
class RowBlocks {
 public:
  explicit RowBlocks(const Type& type)
      : dtype_(type.dtype), rows_(num_rows(type.shape)), width_(type.shape.back()) {}

  /// Some rows in scratch memory: element k of row r at columns[k * stride + r].
  struct Block {
    int64_t begin, rows, width, stride;
    float* columns;
    float* more;  ///< as many floats
    float* most;  ///< `stride` floats each
    float* sum;
    float* factor;
    float* plain;  ///< as many as `columns`
  };

  /// A kernel that calls body(args, block) for all rows, whose columns are not set yet.
  template <typename Body>
  Kernel kernel(int num_threads, Body body) const {
    const int64_t stride = std::clamp<int64_t>(16384 / width_, 16, 64) / 16 * 16, area = stride * width_;
    const int64_t blocks = (rows_ + stride - 1) / stride;
    const int64_t grain = std::max<int64_t>(1, kGrain / area);
    const auto parts = static_cast<int>(std::clamp<int64_t>(blocks / grain, 1, num_threads));
    const auto block = [=, rows = rows_, width = width_](const KernelArgs& args, int64_t index, float* at) {
      body(args, Block{.begin = index * stride,
                       .rows = std::min(stride, rows - index * stride),
                       .width = width,
                       .stride = stride,
                       .columns = at,
                       .more = at + area,
                       .most = at + 3 * area,
                       .sum = at + 3 * area + stride,
                       .factor = at + 3 * area + 2 * stride,
                       .plain = at + 2 * area});
    };
    return row_kernel(blocks, parts, 3 * area + 3 * stride, block);
  }

  /// Sets `columns` from an array of this type.
  void read(const Block& block, const void* data, float* columns) const {
    const float* from = cpu::as_f32(dtype_, data, block.begin * width_, block.rows * width_, block.plain);
    cpu::simd().transpose(from, width_, block.rows, width_, columns, block.stride);
  }
  /// Writes the rows back, after finish(rows in their own order, f32).
  template <typename Finish>
  void write(const Block& block, const float* columns, void* data, Finish finish) const {
    float* to = run_to_write(dtype_, data, block.begin * width_, block.plain);
    cpu::simd().transpose(columns, block.stride, width_, block.rows, to, width_);
    finish(to);
    cpu::store_f32(dtype_, to, data, block.begin * width_, block.rows * width_);
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t width_;
};

/// Sets `most` to each row's largest element and `sum` to what exp(element - largest) adds up to.
void add_up_exponentials(const RowBlocks::Block& block);

}  // namespace hearth::ops
