#include "backend/cpu/simd/simd.h"

namespace hearth::cpu {

namespace {

const SimdKernels& best() {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  if (avx512) {
    const bool pairs = __builtin_cpu_supports("avx512bf16") != 0;
    static const SimdKernels kWithPairs =
        pairs ? with_tiles(with_bf16_pairs(kAvx512Kernels)) : kAvx512Kernels;
    return kWithPairs;
  }
  if (avx2) return kAvx2Kernels;
#endif
  return kBaselineKernels;
}

SimdKernels& active() {
  static SimdKernels kernels = best();
  return kernels;
}

}  // namespace

const SimdKernels& simd() { return active(); }
void use_simd(const SimdKernels& kernels) { active() = kernels; }

}  // namespace hearth::cpu
