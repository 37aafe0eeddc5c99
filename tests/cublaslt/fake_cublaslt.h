#pragma once

#include <cublasLt.h>

#include <map>
#include <vector>

/// Fake cuBLASLt: multiplies nothing, and stores how its functions were called.
struct FakeCublasLt {
  /// Properties of an algorithm, whose descriptor contains its id in the first word and zeros otherwise.
  struct Algorithm {
    size_t workspace_bytes = 0;
    uint32_t reduction_scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasStatus_t state = CUBLAS_STATUS_SUCCESS;
  };
  std::map<uint64_t, Algorithm> algorithms;
  std::vector<uint64_t> recommended;  ///< ids that the heuristic returns, the best first
  std::vector<int> max_counts;        ///< number of algorithms requested by each call of the heuristic
  std::map<int, uint64_t> preference;
  std::vector<uint64_t> used;  ///< id of the algorithm of each matmul
};
extern "C" FakeCublasLt* fake_cublaslt();
