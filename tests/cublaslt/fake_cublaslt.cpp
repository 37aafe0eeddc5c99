#include "fake_cublaslt.h"

#include <algorithm>
#include <cstring>

namespace {

const FakeCublasLt::Algorithm* find(const cublasLtMatmulAlgo_t& algorithm) {
  const auto found = fake_cublaslt()->algorithms.find(algorithm.data[0]);
  const bool has_more = std::any_of(std::begin(algorithm.data) + 1, std::end(algorithm.data),
                                    [](uint64_t word) { return word != 0; });
  return found == fake_cublaslt()->algorithms.end() || has_more ? nullptr : &found->second;
}

}  // namespace

extern "C" {

FakeCublasLt* fake_cublaslt() {
  static FakeCublasLt one;
  return &one;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(fake_cublaslt());
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "invalid value";
}
size_t cublasLtGetVersion() { return 990102; }

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t, size_t, cublasComputeType_t,
                                               cudaDataType_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t, size_t, cudaDataType_t, uint64_t,
                                                 uint64_t, int64_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  uint64_t number = 0;
  std::memcpy(&number, value, size);
  fake_cublaslt()->preference[attribute] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t,
                                              int max_count, cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  FakeCublasLt& fake = *fake_cublaslt();
  fake.max_counts.push_back(max_count);
  *count = std::min(max_count, static_cast<int>(fake.recommended.size()));
  for (int i = 0; i < *count; ++i) {
    const uint64_t id = fake.recommended[static_cast<size_t>(i)];
    results[i] = {.algo = {{id}},
                  .workspaceSize = fake.algorithms.at(id).workspace_bytes,
                  .state = fake.algorithms.at(id).state,
                  .wavesCount = 1,
                  .reserved = {}};
  }
  return *count == 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const FakeCublasLt::Algorithm* const found = find(*algorithm);
  if (found == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *result = {.algo = *algorithm,
             .workspaceSize = found->workspace_bytes,
             .state = found->state,
             .wavesCount = 1,
             .reserved = {}};
  return found->state;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t, void* value,
                                                    size_t size, size_t* written) {
  const FakeCublasLt::Algorithm* const found = find(*algorithm);
  if (found == nullptr || size != sizeof found->reduction_scheme) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &found->reduction_scheme, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                              cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                              const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t) {
  fake_cublaslt()->used.push_back(algorithm->data[0]);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
