#include <cublasLt.h>

#include <array>
#include <bit>
#include <map>
#include <span>

#include "backend/gpu/vendor/blas.h"
#include "backend/gpu/vendor/parts.h"
#include "base/error.h"
#include "base/shared_library.h"

namespace hearth::gpu {
namespace vendor {
namespace {

/// Functions of cuBLASLt, loaded at run time in the release that the headers belong to; null if it is not
/// installed.
struct CublasLt {
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtGetStatusString) get_status_string = nullptr;
  decltype(&cublasLtGetVersion) get_version = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_config_get_attribute = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) algo_get_heuristic = nullptr;
  decltype(&cublasLtMatmulDescInit_internal) desc_init = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set_attribute = nullptr;
  decltype(&cublasLtMatmulPreferenceInit_internal) preference_init = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set_attribute = nullptr;
  decltype(&cublasLtMatrixLayoutInit_internal) layout_init = nullptr;
  bool is_here = false;

  CublasLt() {
    std::vector<std::string> files = {fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR)};
#ifdef HEARTH_CUBLASLT
    files.emplace_back(HEARTH_CUBLASLT);
#endif
    const SharedLibrary library(files);
    is_here = library.find("cublasLtCreate", create) && library.find("cublasLtDestroy", destroy) &&
              library.find("cublasLtGetStatusString", get_status_string) &&
              library.find("cublasLtGetVersion", get_version) && library.find("cublasLtMatmul", matmul) &&
              library.find("cublasLtMatmulAlgoCheck", algo_check) &&
              library.find("cublasLtMatmulAlgoConfigGetAttribute", algo_config_get_attribute) &&
              library.find("cublasLtMatmulAlgoGetHeuristic", algo_get_heuristic) &&
              library.find("cublasLtMatmulDescInit_internal", desc_init) &&
              library.find("cublasLtMatmulDescSetAttribute", desc_set_attribute) &&
              library.find("cublasLtMatmulPreferenceInit_internal", preference_init) &&
              library.find("cublasLtMatmulPreferenceSetAttribute", preference_set_attribute) &&
              library.find("cublasLtMatrixLayoutInit_internal", layout_init);
  }
};
const CublasLt& cublaslt() {
  static const CublasLt library;
  return library;
}

/// Size in bytes of the workspace, which contains partial sums of split-K.
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;
/// Alignment of a matmul's arrays in bytes.
constexpr uint32_t kAlignment = 64;
/// Alignment of the workspace in bytes. On Hopper, cuBLASLt refuses matmuls with a smaller one.
constexpr uintptr_t kWorkspaceAlignment = 256;

std::byte* aligned(std::byte* workspace) {
  const auto address = reinterpret_cast<uintptr_t>(workspace);
  return workspace + (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
}

void check(cublasStatus_t status, std::string_view doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(
      status == CUBLAS_STATUS_ALLOC_FAILED ? DeviceError::Kind::out_of_memory : DeviceError::Kind::fault,
      fmt::format("{} failed: {}", doing, cublaslt().get_status_string(status)));
}

cudaDataType_t datatype(DType dtype) {
  if (dtype == DType::bf16) return CUDA_R_16BF;
  return dtype == DType::f16 ? CUDA_R_16F : CUDA_R_32F;
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  check(cublaslt().desc_set_attribute(desc, attribute, &value, sizeof value), "describing a matmul");
}
template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  check(cublaslt().preference_set_attribute(preference, attribute, &value, sizeof value),
        "describing a matmul");
}

/// Describes an array: [rows, columns], or [columns, rows] if `transposed`.
cublasLtMatrixLayoutOpaque_t layout(DType dtype, bool transposed, int64_t rows, int64_t columns,
                                    int64_t leading) {
  cublasLtMatrixLayoutOpaque_t made;
  check(cublaslt().layout_init(&made, sizeof made, datatype(dtype),
                               static_cast<uint64_t>(transposed ? columns : rows),
                               static_cast<uint64_t>(transposed ? rows : columns), leading),
        "describing a matmul");
  return made;
}

/// Returns a preference that requires f32 partial sums for split-K. Partial sums in the dtype of d would be
/// rounded before they are added.
cublasLtMatmulPreferenceOpaque_t preference() {
  cublasLtMatmulPreferenceOpaque_t made;
  check(cublaslt().preference_init(&made, sizeof made), "describing a matmul");
  set<uint64_t>(&made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set<uint32_t>(&made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
  for (const auto alignment :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set<uint32_t>(&made, alignment, kAlignment);
  return made;
}

/// Descriptors of a matmul for the library.
struct Problem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  explicit Problem(const BlasMatmul& p);
  /// Returns the algorithms that the library's heuristic ranks first, at most `max_count`.
  std::vector<cublasLtMatmulAlgo_t> recommended(cublasLtHandle_t handle, int max_count);
  /// Returns the reason why the algorithm must not be used; empty if it may be used.
  std::string fault_of(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm);
};

Problem::Problem(const BlasMatmul& p)
    : a(layout(p.in, p.transpose_a, p.m, p.k, p.leading_a)),
      b(layout(p.in, p.transpose_b, p.k, p.n, p.leading_b)),
      c(layout(p.out, false, p.m, p.n, p.leading_c)) {
  check(cublaslt().desc_init(&desc, sizeof desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a matmul");
  set<int32_t>(&desc, CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set<int32_t>(&desc, CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
}

std::vector<cublasLtMatmulAlgo_t> Problem::recommended(cublasLtHandle_t handle, int max_count) {
  HEARTH_CHECK(max_count <= kMaxBlasAlgorithms);
  cublasLtMatmulPreferenceOpaque_t preference_desc = preference();
  std::array<cublasLtMatmulHeuristicResult_t, kMaxBlasAlgorithms> found;
  int num_found = 0;
  check(cublaslt().algo_get_heuristic(handle, &desc, &a, &b, &c, &c, &preference_desc, max_count,
                                      found.data(), &num_found),
        "choosing an algorithm of cuBLASLt");
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const cublasLtMatmulHeuristicResult_t& result :
       std::span(found).first(static_cast<size_t>(num_found))) {
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  check(algorithms.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS,
        "choosing an algorithm of cuBLASLt");
  return algorithms;
}

/// True if split-K adds partial sums in f32 in a fixed order, or if there are none.
bool has_fixed_order(const cublasLtMatmulAlgo_t& algorithm) {
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_MASK;
  size_t num_bytes = 0;
  const cublasStatus_t status = cublaslt().algo_config_get_attribute(
      &algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &num_bytes);
  return status == CUBLAS_STATUS_SUCCESS &&
         (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

std::string Problem::fault_of(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result = {};
  const cublasStatus_t status = cublaslt().algo_check(handle, &desc, &a, &b, &c, &c, &algorithm, &result);
  if (status != CUBLAS_STATUS_SUCCESS)
    return fmt::format("cuBLASLt rejects the algorithm: {}", cublaslt().get_status_string(status));
  if (result.workspaceSize > kWorkspaceBytes)
    return fmt::format("the algorithm needs a workspace of {} bytes, but {} are planned",
                       result.workspaceSize, kWorkspaceBytes);
  return has_fixed_order(algorithm) ? ""
                                    : "the algorithm does not add partial sums in f32 and in a fixed order";
}

/// A prepared matmul. It uses the algorithm in BlasMatmul if that is valid, otherwise the first that the
/// library's heuristic recommends.
struct Plan {
  Problem problem;
  cublasLtMatmulAlgo_t algorithm;

  Plan(cublasLtHandle_t handle, const BlasMatmul& p) : problem(p) {
    if (p.algorithm) {
      algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(*p.algorithm);
      if (problem.fault_of(handle, algorithm).empty()) return;
    }
    algorithm = problem.recommended(handle, 1).front();
  }
};

}  // namespace

struct Blas::Parts {
  cublasLtHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  std::map<BlasMatmul, Plan> plans;

  ~Parts() {
    if (handle != nullptr && !timed_out) static_cast<void>(cublaslt().destroy(handle));
  }
};

Blas::Blas(NativeStream stream) : parts_(std::make_unique<Parts>()) {
  if (!cublaslt().is_here) throw DeviceError(DeviceError::Kind::fault, "cuBLASLt is not installed");
  parts_->stream = stream;
  check(cublaslt().create(&parts_->handle), "opening cuBLASLt");
}
Blas::~Blas() = default;

void Blas::multiply(const BlasMatmul& matmul, const BlasArrays& arrays) {
  auto found = parts_->plans.find(matmul);
  if (found == parts_->plans.end()) found = parts_->plans.emplace(matmul, Plan(parts_->handle, matmul)).first;
  Plan& plan = found->second;
  const float one = 1, beta = arrays.c == nullptr ? 0 : 1;
  const void* c = arrays.c == nullptr ? arrays.d : arrays.c;
  Problem& p = plan.problem;
  check(cublaslt().matmul(parts_->handle, &p.desc, &one, arrays.a, &p.a, arrays.b, &p.b, &beta, c, &p.c,
                          arrays.d, &p.c, &plan.algorithm, aligned(arrays.workspace), kWorkspaceBytes,
                          parts_->stream),
        "a matmul of cuBLASLt");
}

std::vector<BlasAlgorithm> Blas::algorithms(const BlasMatmul& matmul) {
  Problem problem(matmul);
  std::vector<BlasAlgorithm> valid;
  for (const cublasLtMatmulAlgo_t& algorithm : problem.recommended(parts_->handle, kMaxBlasAlgorithms)) {
    if (problem.fault_of(parts_->handle, algorithm).empty())
      valid.push_back(std::bit_cast<BlasAlgorithm>(algorithm));
  }
  return valid;
}

std::string Blas::algorithm_fault(const BlasMatmul& matmul) {
  HEARTH_CHECK(matmul.algorithm);
  return Problem(matmul).fault_of(parts_->handle, std::bit_cast<cublasLtMatmulAlgo_t>(*matmul.algorithm));
}

}  // namespace vendor

std::string blas_library() {
  if (!vendor::cublaslt().is_here) return "";
  const size_t version = vendor::cublaslt().get_version();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}
int64_t blas_workspace_bytes() { return vendor::kWorkspaceBytes + vendor::kWorkspaceAlignment; }

}  // namespace hearth::gpu
