#pragma once

#include <cstddef>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// Convolution as matmuls over patches (im2col), which are rows of kernel_h * kernel_w * in_c inputs. Patches
/// are gathered in cache-sized chunks; a 1x1 kernel with stride 1 reads the image itself.
struct DirectConv {
  ConvSpec spec;

  /// Computes y = relu(conv(x, w) + bias + residual). `workspace` has forward_workspace_bytes().
  int64_t forward_workspace_bytes() const;
  void forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
               std::byte* workspace, ThreadPool& threads) const;
  /// Computes dx from dy and w. `workspace` has data_workspace_bytes().
  int64_t data_workspace_bytes() const;
  void backward_data(const void* dy, const void* w, void* dx, std::byte* workspace,
                     ThreadPool& threads) const;
  /// Computes dw (f32, HWIO) from x and dy. `workspace` has weights_workspace_bytes().
  int64_t weights_workspace_bytes() const;
  void backward_weights(const void* x, const void* dy, float* dw, std::byte* workspace,
                        ThreadPool& threads) const;
};

}  // namespace hearth::cpu
