#include "ops/conv/conv_pool_cpu.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {

ConvPool::ConvPool(const ConvShape& shape) : shape_(shape), num_parts_(num_sum_parts(shape.batch, 1)) {
  const int64_t row = (shape.in_w + 2 * shape.padding) * shape.in_c;
  for (int64_t y = 0; y < shape.kernel_h; ++y) {
    for (int64_t i = 0; i < shape.kernel_w * shape.in_c; ++i)
      tap_offsets_.push_back(static_cast<int32_t>(y * row + i));
  }
}

int64_t ConvPool::padded_floats() const {
  const ConvShape& s = shape_;
  return round_up((s.in_h + 2 * s.padding) * (s.in_w + 2 * s.padding) * s.in_c, 16);
}

int64_t ConvPool::workspace_bytes() const {
  const int64_t sums = round_up((std::ssize(tap_offsets_) + 1) * shape_.out_c, 16);
  return num_parts_ * (padded_floats() + sums) * static_cast<int64_t>(sizeof(float));
}

void ConvPool::pad_image(const float* image, float* padded) const {
  const ConvShape& s = shape_;
  const int64_t row = (s.in_w + 2 * s.padding) * s.in_c;
  for (int64_t y = 0; y < s.in_h; ++y) {
    std::memcpy(padded + (y + s.padding) * row + s.padding * s.in_c, image + y * s.in_w * s.in_c,
                static_cast<size_t>(s.in_w * s.in_c) * sizeof(float));
  }
}

ConvPoolRow ConvPool::row_at(const float* padded, int64_t y) const {
  const int64_t row = (shape_.in_w + 2 * shape_.padding) * shape_.in_c;
  return {.padded = padded + 2 * y * row,
          .row = row,
          .pixel = shape_.in_c,
          .tap_offsets = tap_offsets_.data(),
          .num_taps = std::ssize(tap_offsets_),
          .channels = shape_.out_c,
          .out_w = shape_.out_w() / 2};
}

void ConvPool::forward(const float* x, const float* w, const float* bias, float* pooled, uint8_t* argmax,
                       std::byte* workspace, ThreadPool& threads) const {
  const ConvShape& s = shape_;
  const int64_t pooled_h = s.out_h() / 2;
  const int64_t pooled_w = s.out_w() / 2;
  threads.for_parts(num_parts_, [&](int part) {
    float* padded = reinterpret_cast<float*>(workspace) + part * padded_floats();
    std::fill(padded, padded + padded_floats(), 0.0F);
    const Range images = split_range(s.batch, num_parts_, part);
    for (int64_t image = images.begin; image < images.end; ++image) {
      pad_image(x + image * s.in_h * s.in_w * s.in_c, padded);
      for (int64_t y = 0; y < pooled_h; ++y) {
        const int64_t at = (image * pooled_h + y) * pooled_w * s.out_c;
        simd().conv_pool_forward(row_at(padded, y), w, bias, pooled + at, argmax + at);
      }
    }
  });
}

void ConvPool::backward_weights(const float* x, const float* pooled, const uint8_t* argmax,
                                const float* dpooled, float* dw, float* db, std::byte* workspace,
                                ThreadPool& threads) const {
  const ConvShape& s = shape_;
  const int64_t pooled_h = s.out_h() / 2;
  const int64_t pooled_w = s.out_w() / 2;
  const int64_t num_weights = std::ssize(tap_offsets_) * s.out_c;
  const int64_t sums = round_up(num_weights + s.out_c, 16);
  auto* base = reinterpret_cast<float*>(workspace);
  threads.for_parts(num_parts_, [&](int part) {
    float* sum = base + part * (padded_floats() + sums);
    float* padded = sum + sums;
    std::fill(sum, padded + padded_floats(), 0.0F);
    const Range images = split_range(s.batch, num_parts_, part);
    for (int64_t image = images.begin; image < images.end; ++image) {
      pad_image(x + image * s.in_h * s.in_w * s.in_c, padded);
      for (int64_t y = 0; y < pooled_h; ++y) {
        const int64_t at = (image * pooled_h + y) * pooled_w * s.out_c;
        simd().conv_pool_backward(row_at(padded, y), pooled + at, argmax + at, dpooled + at, sum,
                                  sum + num_weights);
      }
    }
  });
  for (int64_t i = 0; i < num_weights + s.out_c; ++i) {
    float total = 0;
    for (int part = 0; part < num_parts_; ++part) total += base[part * (padded_floats() + sums) + i];
    (i < num_weights ? dw[i] : db[i - num_weights]) = total;
  }
}

}  // namespace hearth::cpu
