#pragma once

#include <cstdint>
#include <optional>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"
#include "ops/conv/depthwise_cpu.h"

namespace hearth::cpu {

/// Returns `winograd` if it is allowed and faster (3x3 kernel, stride 1, enough channels and pixels),
/// otherwise `direct`.
ConvAlgorithm choose_algorithm(const ConvShape& shape, bool winograd_allowed);

/// Forward convolution: y = relu(conv(x, w) + bias + residual); bias, residual and relu are optional.
class ConvForward {
 public:
  explicit ConvForward(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* x, const void* w, const float* bias, const void* residual, void* y,
           std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
  std::optional<DepthwiseConv> depthwise_;  ///< set for depthwise convolutions
};

/// Input gradient of a convolution: computes dx from dy and w.
class ConvBackwardData {
 public:
  explicit ConvBackwardData(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* dy, const void* w, void* dx, std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
  std::optional<DepthwiseConv> depthwise_;
};

/// Weight gradient of a convolution: computes dw (f32, HWIO) from x and dy.
class ConvBackwardWeights {
 public:
  explicit ConvBackwardWeights(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* x, const void* dy, float* dw, std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
  std::optional<DepthwiseConv> depthwise_;
};

}  // namespace hearth::cpu
