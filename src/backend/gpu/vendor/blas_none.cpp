#include "backend/gpu/device.h"
#include "backend/gpu/vendor/blas.h"

namespace hearth::gpu {

std::string blas_library() { return ""; }
int64_t blas_workspace_bytes() { return 0; }

namespace vendor {

struct Blas::Parts {};

Blas::Blas(NativeStream) {
  throw DeviceError(DeviceError::Kind::fault, "this build of Hearth has no BLAS library");
}
Blas::~Blas() = default;
void Blas::multiply(const BlasMatmul&, const BlasArrays&) {}
std::vector<BlasAlgorithm> Blas::algorithms(const BlasMatmul&) { return {}; }
std::string Blas::algorithm_fault(const BlasMatmul&) { return "there is no BLAS library"; }

}  // namespace vendor
}  // namespace hearth::gpu
