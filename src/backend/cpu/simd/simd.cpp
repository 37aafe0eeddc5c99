#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {

const SimdKernels& simd() {
#if defined(__x86_64__)
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  static const bool pairs = avx512 && __builtin_cpu_supports("avx512bf16") != 0;
  static const SimdKernels kWithPairs = pairs ? with_bf16_pairs(kAvx512Kernels) : kAvx512Kernels;
  if (avx512) return kWithPairs;
  if (avx2) return kAvx2Kernels;
#endif
  return kBaselineKernels;
}

}  // namespace hearth::cpu
