#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// A 2-D convolution over NHWC images with HWIO weights, equal stride and zero padding on both axes.
struct ConvShape {
  int64_t batch = 0;
  int64_t in_h = 0;
  int64_t in_w = 0;
  int64_t in_c = 0;
  int64_t out_c = 0;
  int64_t kernel_h = 3;
  int64_t kernel_w = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  int64_t out_h() const { return (in_h + 2 * padding - kernel_h) / stride + 1; }
  int64_t out_w() const { return (in_w + 2 * padding - kernel_w) / stride + 1; }
};

/// direct: sums in the order of the definition. winograd: F(4x4,3x3) of Lavin and Gray (CVPR 2016), fewer
/// multiplications, rms error 3 to 4 times direct's.
enum class ConvAlgorithm : uint8_t { direct, winograd };

/// Winograd where it pays: 3x3, stride 1, enough channels; unless switched off for the process.
ConvAlgorithm choose_algorithm(const ConvShape& shape);
/// Switches Winograd on or off for kernels prepared from now on (parity tests compare ReLU masks bit by bit).
void allow_winograd(bool allowed);

struct ConvSpec {
  ConvShape shape;
  DType x = DType::f32;  ///< activations: x, y, residual and their gradients
  DType w = DType::f32;
  bool bias = false;
  bool residual = false;
  bool relu = false;
  int num_threads = 1;
  ConvAlgorithm algorithm = ConvAlgorithm::direct;
};

/// y = relu(conv(x, w) + bias + residual), each part on request.
class ConvForward {
 public:
  explicit ConvForward(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* x, const void* w, const float* bias, const void* residual, void* y,
           std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
};

/// dx from dy and w.
class ConvBackwardData {
 public:
  explicit ConvBackwardData(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* dy, const void* w, void* dx, std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
};

/// dw (f32, HWIO) from x and dy.
class ConvBackwardWeights {
 public:
  explicit ConvBackwardWeights(const ConvSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* x, const void* dy, float* dw, std::byte* workspace, ThreadPool& threads) const;

 private:
  ConvSpec spec_;
};

}  // namespace hearth::cpu
