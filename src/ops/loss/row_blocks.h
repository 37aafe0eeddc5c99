#pragma once

#include <algorithm>
#include <string>

#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {

/// Returns an error message unless inputs 0 and 1 are floating logits [N, K] and i32 labels [N]; empty if
/// valid.
std::string logits_fault(const NodeView& node);

/// Processes an array in blocks of rows that are transposed and converted to f32: SIMD vectors then run
/// across rows, and short rows are as fast as long ones.
class RowBlocks {
 public:
  explicit RowBlocks(const Type& type)
      : dtype_(type.dtype), rows_(num_rows(type.shape)), width_(type.shape.back()) {}

  /// A transposed block of rows in scratch memory: element k of row r is at columns[k * stride + r].
  struct Block {
    int64_t begin, rows, width, stride;
    float* columns;
    float* more;     ///< scratch of the size of `columns`, for the caller's use
    float* row_max;  ///< [stride]; sum and factor have the same size
    float* sum;
    float* factor;
    float* plain;  ///< scratch of the size of `columns`, for rows that are not transposed
  };

  /// Returns a kernel that calls body(args, block) for all blocks of rows, in parallel; `body` must fill the
  /// block's columns with read().
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
                       .row_max = at + 3 * area,
                       .sum = at + 3 * area + stride,
                       .factor = at + 3 * area + 2 * stride,
                       .plain = at + 2 * area});
    };
    return row_kernel(blocks, parts, 3 * area + 3 * stride, block);
  }

  /// Fills `columns` with the transposed block of an array of the constructor's type.
  void read(const Block& block, const void* data, float* columns) const {
    const float* from = cpu::as_f32(dtype_, data, block.begin * width_, block.rows * width_, block.plain);
    cpu::simd().transpose(from, width_, block.rows, width_, columns, block.stride);
  }
  /// Transposes `columns` back to rows, calls finish(f32 rows [rows, width]), which may change them, and
  /// stores them to the array `data`.
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

/// Sets block.row_max to each row's maximum and block.sum to the row's sum of exp(element - maximum).
void add_up_exponentials(const RowBlocks::Block& block);

}  // namespace hearth::ops
