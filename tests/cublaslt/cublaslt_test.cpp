// Tests which algorithms of cuBLASLt are used; the fake library in fake_cublaslt.cpp stores the calls.
#include <gmock/gmock.h>

#include "backend/gpu/device.h"
#include "backend/gpu/vendor/blas.h"
#include "base/shared_library.h"
#include "fake_cublaslt.h"

namespace hearth::gpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kTooManyBytes = size_t{64} << 20;
constexpr BlasAlgorithm algorithm(uint64_t id) { return {{id}}; }

class CublasLt : public testing::Test {
 protected:
  CublasLt() {
    FakeCublasLt* (*fake_of)() = nullptr;
    EXPECT_TRUE(SharedLibrary({HEARTH_CUBLASLT}).find("fake_cublaslt", fake_of));
    fake_ = fake_of();
    *fake_ = {.algorithms = {{1, {.workspace_bytes = 4096}},
                             {2, {.workspace_bytes = kTooManyBytes}},
                             {3, {.reduction_scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE}},
                             {4, {.reduction_scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}},
                             {5, {.state = CUBLAS_STATUS_NOT_SUPPORTED}}},
              .recommended = {5, 4, 3, 2, 1}};
  }

  static BlasMatmul matmul(std::optional<BlasAlgorithm> algorithm = {}) {
    return {.m = 8, .n = 8, .k = 8, .leading_a = 8, .leading_b = 8, .leading_c = 8, .algorithm = algorithm};
  }
  uint64_t used_for(const BlasMatmul& matmul) {
    blas_.multiply(matmul, {});
    return fake_->used.back();
  }

  FakeCublasLt* fake_ = nullptr;
  vendor::Blas blas_{nullptr};
};

TEST_F(CublasLt, ListsValidAlgorithmsWithAFixedOrderOfSums) {
  EXPECT_THAT(blas_.algorithms(matmul()), ElementsAre(algorithm(4), algorithm(1)));
  EXPECT_THAT(fake_->max_counts, ElementsAre(8));
  EXPECT_EQ(fake_->preference.at(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            uint64_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_LT(fake_->preference.at(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), kTooManyBytes);
  fake_->recommended = {3, 2};
  EXPECT_THAT(blas_.algorithms(matmul()), IsEmpty());
  fake_->recommended = {};
  EXPECT_THROW(blas_.algorithms(matmul()), DeviceError);
}

TEST_F(CublasLt, UsesTheGivenAlgorithmWhateverTheHeuristicSays) {
  EXPECT_EQ(used_for(matmul(algorithm(1))), 1U);
  fake_->recommended = {4};
  EXPECT_EQ(used_for(matmul(algorithm(1))), 1U);
  EXPECT_THAT(fake_->max_counts, IsEmpty());
  EXPECT_EQ(used_for(matmul()), 4U) << "the first choice";
}

TEST_F(CublasLt, SaysWhyAnAlgorithmIsNotValid) {
  EXPECT_EQ(blas_.algorithm_fault(matmul(algorithm(1))), "");
  EXPECT_EQ(blas_.algorithm_fault(matmul(algorithm(4))), "");
  EXPECT_EQ(blas_.algorithm_fault(matmul(algorithm(9))), "cuBLASLt rejects the algorithm: invalid value");
  EXPECT_EQ(blas_.algorithm_fault(matmul(algorithm(5))), "cuBLASLt rejects the algorithm: not supported");
  EXPECT_EQ(blas_.algorithm_fault(matmul(BlasAlgorithm{{1, 0, 0, 0, 0, 0, 0, 7}})),
            "cuBLASLt rejects the algorithm: invalid value");
  EXPECT_THAT(blas_.algorithm_fault(matmul(algorithm(2))), HasSubstr("a workspace of 67108864 bytes"));
  EXPECT_THAT(blas_.algorithm_fault(matmul(algorithm(3))), HasSubstr("partial sums"));
}

TEST_F(CublasLt, NeverRunsAnAlgorithmThatIsNotValid) {
  fake_->recommended = {4, 1};
  for (const uint64_t id : {2, 3, 5, 9}) EXPECT_EQ(used_for(matmul(algorithm(id))), 4U) << id;
}

TEST_F(CublasLt, HasItsVersionInItsName) { EXPECT_EQ(blas_library(), "cuBLASLt 99.1.2"); }

}  // namespace
}  // namespace hearth::gpu
