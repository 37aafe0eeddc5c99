#include "backend/gpu/vendor/blas.h"
#include "backend/gpu/modules.h"
#include "backend/gpu/vendor/parts.h"
// Included after the header that defines HIP's platform, as rocBLAS requires.
#include <rocblas/rocblas.h>

#include "base/error.h"
#include "base/shared_library.h"

namespace hearth::gpu {
namespace vendor {
namespace {

/// Functions of rocBLAS, loaded at run time in the release of the HIP runtime; null if it is not installed.
struct Rocblas {
  decltype(&rocblas_create_handle) create_handle = nullptr;
  decltype(&rocblas_destroy_handle) destroy_handle = nullptr;
  decltype(&rocblas_gemm_ex) gemm_ex = nullptr;
  decltype(&rocblas_get_version_string) get_version_string = nullptr;
  // Declared without decltype, which would warn: headers of ROCm 6.4 mark the function as deprecated.
  rocblas_status (*set_atomics_mode)(rocblas_handle, rocblas_atomics_mode) = nullptr;
  decltype(&rocblas_set_pointer_mode) set_pointer_mode = nullptr;
  decltype(&rocblas_set_stream) set_stream = nullptr;
  decltype(&rocblas_set_workspace) set_workspace = nullptr;
  decltype(&rocblas_status_to_string) status_to_string = nullptr;
  bool is_here = false;

  Rocblas() {
    const SharedLibrary library(files());
    is_here = library.find("rocblas_create_handle", create_handle) &&
              library.find("rocblas_destroy_handle", destroy_handle) &&
              library.find("rocblas_gemm_ex", gemm_ex) &&
              library.find("rocblas_get_version_string", get_version_string) &&
              library.find("rocblas_set_atomics_mode", set_atomics_mode) &&
              library.find("rocblas_set_pointer_mode", set_pointer_mode) &&
              library.find("rocblas_set_stream", set_stream) &&
              library.find("rocblas_set_workspace", set_workspace) &&
              library.find("rocblas_status_to_string", status_to_string);
  }
  static std::vector<std::string> files() {
    int version = 0;
    ignore(RUNTIME(RuntimeGetVersion)(&version));
    const int release = version / 10000000;
    std::vector<std::string> numbers = {"0", "3"};
    if (release >= 6) numbers = {release == 6 ? "4" : "5"};
    std::vector<std::string> files;
    for (const std::string& number : numbers) {
      files.push_back("librocblas.so." + number);
      files.push_back(rocm_folder() + "/lib/librocblas.so." + number);
    }
    return files;
  }
};
const Rocblas& rocblas() {
  static const Rocblas library;
  return library;
}

/// Max bytes of the workspace, which holds the partial sums of split-K matmuls with few outputs.
constexpr int64_t kWorkspaceBytes = int64_t{16} << 20;

void check(rocblas_status status, std::string_view doing) {
  if (status == rocblas_status_success) return;
  throw DeviceError(
      status == rocblas_status_memory_error ? DeviceError::Kind::out_of_memory : DeviceError::Kind::fault,
      fmt::format("{} failed: {}", doing, rocblas().status_to_string(status)));
}

rocblas_datatype datatype(DType dtype) {
  if (dtype == DType::bf16) return rocblas_datatype_bf16_r;
  return dtype == DType::f16 ? rocblas_datatype_f16_r : rocblas_datatype_f32_r;
}
rocblas_operation operation(bool transposed) {
  return transposed ? rocblas_operation_transpose : rocblas_operation_none;
}
rocblas_int size(int64_t value) {
  const auto narrow = static_cast<rocblas_int>(value);
  HEARTH_CHECK(narrow == value);
  return narrow;
}

}  // namespace

struct Blas::Parts {
  rocblas_handle handle = nullptr;

  ~Parts() {
    if (handle != nullptr && !timed_out) static_cast<void>(rocblas().destroy_handle(handle));
  }
};

Blas::Blas(NativeStream stream) : parts_(std::make_unique<Parts>()) {
  if (!rocblas().is_here) throw DeviceError(DeviceError::Kind::fault, "rocBLAS is not installed");
  check(rocblas().create_handle(&parts_->handle), "opening rocBLAS");
  check(rocblas().set_stream(parts_->handle, stream), "setting the stream of rocBLAS");
  check(rocblas().set_pointer_mode(parts_->handle, rocblas_pointer_mode_host), "setting up rocBLAS");
  check(rocblas().set_atomics_mode(parts_->handle, rocblas_atomics_not_allowed), "setting up rocBLAS");
}
Blas::~Blas() = default;

void Blas::multiply(const BlasMatmul& p, const BlasArrays& arrays) {
  const float one = 1, beta = arrays.c == nullptr ? 0 : 1;
  const void* c = arrays.c == nullptr ? arrays.d : arrays.c;
  check(rocblas().set_workspace(parts_->handle, arrays.workspace, kWorkspaceBytes),
        "giving rocBLAS its workspace");
  check(rocblas().gemm_ex(parts_->handle, operation(p.transpose_a), operation(p.transpose_b), size(p.m),
                          size(p.n), size(p.k), &one, arrays.a, datatype(p.in), size(p.leading_a), arrays.b,
                          datatype(p.in), size(p.leading_b), &beta, c, datatype(p.out), size(p.leading_c),
                          arrays.d, datatype(p.out), size(p.leading_c), rocblas_datatype_f32_r,
                          rocblas_gemm_algo_standard, 0, rocblas_gemm_flags_none),
        "a matmul of rocBLAS");
}

std::vector<BlasAlgorithm> Blas::algorithms(const BlasMatmul&) { return {}; }
std::string Blas::algorithm_fault(const BlasMatmul&) { return "rocBLAS chooses its algorithm itself"; }

}  // namespace vendor

std::string blas_library() {
  if (!vendor::rocblas().is_here) return "";
  char version[64] = "";
  if (vendor::rocblas().get_version_string(version, sizeof version) != rocblas_status_success)
    return "rocBLAS";
  std::string_view text = version;
  while (text.ends_with('.')) text.remove_suffix(1);  // a build without a commit ends with dots
  return fmt::format("rocBLAS {}", text);
}
int64_t blas_workspace_bytes() { return vendor::kWorkspaceBytes; }

}  // namespace hearth::gpu
