#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Computes parts [gridDim.y, width]: row blockIdx.y is the sum of rows blockIdx.y, blockIdx.y + gridDim.y,
/// ... of in [rows, width]. One thread per column.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    add_rows(const T* in, float* parts, int64_t rows, int64_t width) {
  const int64_t column = first_element();
  if (column >= width) return;
  float sum = 0;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) sum += rt::to_float(in[row * width + column]);
  parts[blockIdx.y * width + column] = sum;
}

}  // namespace hearth::ops
