#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/blas.h"
#include "backend/gpu/vendor/runtime.h"

namespace hearth::gpu::vendor {

/// The vendor's BLAS, opened for one stream. The constructor throws DeviceError if Hearth was built without
/// it.
class Blas {
 public:
  explicit Blas(NativeStream stream);
  ~Blas();
  /// Implements Stream::multiply; the stream's GPU must be current.
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays);
  /// Implements Stream::algorithms.
  std::vector<BlasAlgorithm> algorithms(const BlasMatmul& matmul);
  /// Implements Stream::algorithm_fault.
  std::string algorithm_fault(const BlasMatmul& matmul);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hearth::gpu::vendor
