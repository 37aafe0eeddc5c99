#include "backend/gpu/blas.h"

namespace hearth::gpu {

bool blas_takes(DType in, DType out) {
  if (in == DType::f32) return out == DType::f32;
  return (in == DType::bf16 || in == DType::f16) && (out == in || out == DType::f32);
}

}  // namespace hearth::gpu
