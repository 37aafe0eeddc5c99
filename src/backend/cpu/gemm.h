#pragma once

#include <cstdint>
#include <memory>

#include "base/dtype.h"
#include "base/threads.h"

namespace hearth::cpu {

/// A matmul of row-major matrices, c[m, n] = act(op(a) op(b) + bias + residual), where op transposes its
/// operand if requested. Sums are f32.
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
  bool bias = false;      ///< true if an f32 bias, one per column, is added
  bool residual = false;  ///< true if a residual with dtype and shape of c is added
  Activation activation = Activation::none;
  int num_threads = 1;
};

/// A prepared matmul. run() allocates nothing and must not be called concurrently.
class Gemm {
 public:
  explicit Gemm(const GemmSpec& spec);
  /// Returns the number of bytes of `workspace` that run() needs.
  int64_t workspace_bytes() const;
  /// Computes c on spec.num_threads threads. `workspace` has workspace_bytes(); bias and residual are null
  /// unless the spec has them.
  void run(const void* a, const void* b, const float* bias, const void* residual, void* c,
           std::byte* workspace, ThreadPool& threads) const;

 private:
  GemmSpec spec_;
  /// True if both operands are read as pairs of bf16; spec_.k then counts pairs.
  bool pairs_ = false;
};

}  // namespace hearth::cpu
