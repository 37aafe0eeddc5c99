#pragma once

#include <vector>

#include "ops/conv/conv_cpu.h"

namespace hearth::cpu {

struct ConvPoolRow;

/// maxpool2x2(relu(conv(x, w) + bias)) with stride 1 over f32 images: only the pooled value and the place of
/// the maximum (2 * row + column) are stored. Output height and width of the convolution are even.
class ConvPool {
 public:
  explicit ConvPool(const ConvShape& shape);
  int64_t workspace_bytes() const;
  void forward(const float* x, const float* w, const float* bias, float* pooled, uint8_t* argmax,
               std::byte* workspace, ThreadPool& threads) const;
  /// dw (HWIO) and db from the cotangent of the pooled values. Never makes the full activation or its
  /// gradient.
  void backward_weights(const float* x, const float* pooled, const uint8_t* argmax, const float* dpooled,
                        float* dw, float* db, std::byte* workspace, ThreadPool& threads) const;

 private:
  int64_t padded_floats() const;
  void pad_image(const float* image, float* padded) const;
  /// What one row of pooled pixels reads of a padded image.
  ConvPoolRow row_at(const float* padded, int64_t y) const;

  ConvShape shape_;
  int num_parts_;
  std::vector<int32_t> tap_offsets_;
};

}  // namespace hearth::cpu
