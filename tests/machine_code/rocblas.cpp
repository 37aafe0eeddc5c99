// A stand-in for librocblas, beside hip_runtime.cpp: the one matmul that Hearth asks it for, in float by the
// host.
#define __HIP_PLATFORM_AMD__  // NOLINT(bugprone-reserved-identifier): HIP asks for it.
#include <hip/hip_runtime_api.h>
#include <rocblas/rocblas.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>

#include "instruction.h"

namespace {

struct Handle {
  hipStream_t stream = nullptr;
};
Handle& of(rocblas_handle handle) { return *reinterpret_cast<Handle*>(handle); }

struct Matmul {
  bool transpose_a, transpose_b;
  int m, n, k;
  const void *a, *b, *c;
  void* d;
  int lda, ldb, ldc, ldd;
  rocblas_datatype in, out;
  float alpha, beta;
};

float element(const void* array, rocblas_datatype type, int64_t at) {
  if (type == rocblas_datatype_f32_r) return static_cast<const float*>(array)[at];
  const uint16_t bits = static_cast<const uint16_t*>(array)[at];
  return type == rocblas_datatype_bf16_r ? std::bit_cast<float>(uint32_t{bits} << 16)
                                         : float{std::bit_cast<machine_code::Half>(bits)};
}
void put(void* array, rocblas_datatype type, int64_t at, float value) {
  if (type == rocblas_datatype_f32_r) {
    static_cast<float*>(array)[at] = value;
  } else if (type == rocblas_datatype_f16_r) {
    static_cast<uint16_t*>(array)[at] = machine_code::Half(value).bits;
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(array)[at] =
        static_cast<uint16_t>(std::isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
}

void multiply(const Matmul& x) {
  for (int64_t column = 0; column < x.n; ++column) {
    for (int64_t row = 0; row < x.m; ++row) {
      float sum = 0;
      for (int64_t k = 0; k < x.k; ++k) {
        const float a = element(x.a, x.in, x.transpose_a ? row * x.lda + k : k * x.lda + row);
        const float b = element(x.b, x.in, x.transpose_b ? k * x.ldb + column : column * x.ldb + k);
        sum = std::fma(a, b, sum);
      }
      const float before = x.beta == 0 ? 0 : x.beta * element(x.c, x.out, column * x.ldc + row);
      put(x.d, x.out, column * x.ldd + row, x.alpha * sum + before);
    }
  }
}

}  // namespace

extern "C" {

rocblas_status rocblas_create_handle(rocblas_handle* handle) {
  *handle = reinterpret_cast<rocblas_handle>(new Handle);
  return rocblas_status_success;
}
rocblas_status rocblas_destroy_handle(rocblas_handle handle) {
  delete &of(handle);
  return rocblas_status_success;
}
rocblas_status rocblas_set_stream(rocblas_handle handle, hipStream_t stream) {
  of(handle).stream = stream;
  return rocblas_status_success;
}
rocblas_status rocblas_set_pointer_mode(rocblas_handle, rocblas_pointer_mode) {
  return rocblas_status_success;
}
rocblas_status rocblas_set_atomics_mode(rocblas_handle, rocblas_atomics_mode) {
  return rocblas_status_success;
}
rocblas_status rocblas_set_workspace(rocblas_handle, void*, size_t) { return rocblas_status_success; }
rocblas_status rocblas_get_version_string(char* text, size_t bytes) {
  std::snprintf(text, bytes, "0.0.0.");
  return rocblas_status_success;
}
const char* rocblas_status_to_string(rocblas_status) { return "rocblas_status"; }

rocblas_status rocblas_gemm_ex(rocblas_handle handle, rocblas_operation a_as, rocblas_operation b_as,
                               rocblas_int m, rocblas_int n, rocblas_int k, const void* alpha, const void* a,
                               rocblas_datatype a_type, rocblas_int lda, const void* b, rocblas_datatype,
                               rocblas_int ldb, const void* beta, const void* c, rocblas_datatype c_type,
                               rocblas_int ldc, void* d, rocblas_datatype, rocblas_int ldd, rocblas_datatype,
                               rocblas_gemm_algo, int32_t, uint32_t) {
  // Recordings replay it as often as they like: never released.
  auto* work = new Matmul{a_as == rocblas_operation_transpose,
                          b_as == rocblas_operation_transpose,
                          m,
                          n,
                          k,
                          a,
                          b,
                          c,
                          d,
                          lda,
                          ldb,
                          ldc,
                          ldd,
                          a_type,
                          c_type,
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta)};
  const hipError_t error = hipLaunchHostFunc(
      of(handle).stream, [](void* work) { multiply(*static_cast<Matmul*>(work)); }, work);
  return error == hipSuccess ? rocblas_status_success : rocblas_status_internal_error;
}

}  // extern "C"
