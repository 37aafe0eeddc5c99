#pragma once

#include <vector>

#include "ops/conv/conv_cpu.h"

namespace hearth::cpu {

struct ConvPoolRow;

/// Computes maxpool2x2(relu(conv(x, w) + bias)) of f32 images, with a convolution of stride 1: stores only
/// the pooled values and the position of each maximum in its 2x2 window (2 * row + column). Height and width
/// of the convolution's result must be even.
class ConvPool {
 public:
  explicit ConvPool(const ConvShape& shape);
  int64_t workspace_bytes() const;
  void forward(const float* x, const float* w, const float* bias, float* pooled, uint8_t* argmax,
               std::byte* workspace, ThreadPool& threads) const;
  /// Computes dw (HWIO) and db from dpooled, the gradient of the pooled values, without storing the full
  /// activation or its gradient.
  void backward_weights(const float* x, const float* pooled, const uint8_t* argmax, const float* dpooled,
                        float* dw, float* db, std::byte* workspace, ThreadPool& threads) const;

 private:
  int64_t padded_floats() const;
  void pad_image(const float* image, float* padded) const;
  /// Returns the rows of a padded image that one row of pooled pixels reads.
  ConvPoolRow row_at(const float* padded, int64_t y) const;

  ConvShape shape_;
  int num_parts_;
  std::vector<int32_t> tap_offsets_;
};

}  // namespace hearth::cpu
