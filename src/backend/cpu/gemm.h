#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// c[m, n] = act(op(a) op(b) + bias + residual): row-major, op transposes on request, sums in f32.
struct GemmSpec {
  enum class Activation : uint8_t { none, relu };
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;  ///< a is [k, m]
  bool transpose_b = false;  ///< b is [n, k]
  DType a = DType::f32;
  DType b = DType::f32;
  DType c = DType::f32;
  bool bias = false;      ///< f32, one per column
  bool residual = false;  ///< dtype and shape of c
  Activation activation = Activation::none;
  int num_threads = 1;
};

/// A prepared matmul; thread-safe to run once at a time, allocates nothing.
class Gemm {
 public:
  explicit Gemm(const GemmSpec& spec);
  int64_t workspace_bytes() const;
  void run(const void* a, const void* b, const float* bias, const void* residual, void* c,
           std::byte* workspace, ThreadPool& threads) const;

 private:
  GemmSpec spec_;
  /// Both operands are read as pairs of bf16: spec_.k counts pairs.
  bool pairs_ = false;
};

}  // namespace hearth::cpu
