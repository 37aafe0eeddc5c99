#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Of a row's logits: the largest, and the sum of exp(logit - largest).
struct RowSoftmax {
  float largest;
  float sum;

  RT_DEVICE float log_sum() const { return largest + logf(sum); }
};
/// Every thread of a block of kBlockThreads gets it; logit(k) is called for each k < width.
template <typename Logit>
RT_DEVICE RowSoftmax softmax_of_row(int64_t width, Logit logit) {
  constexpr float kLeast = -3.4e38F;
  float most = kLeast, sum = 0;
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads) most = rt::Max()(logit(k), most);
  most = rt::reduce_block(most, rt::Max(), kLeast);
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads) sum += expf(logit(k) - most);
  return {most, rt::reduce_block(sum, rt::Add(), 0.0F)};
}
/// Of a row in memory.
template <typename T>
RT_DEVICE RowSoftmax softmax_of_row(const T* row, int64_t width) {
  return softmax_of_row(width, [=](int64_t k) { return rt::to_float(row[k]); });
}

}  // namespace hearth::ops
