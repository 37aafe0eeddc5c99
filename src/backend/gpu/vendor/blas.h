#pragma once

#include <memory>

#include "backend/gpu/blas.h"
#include "backend/gpu/vendor/runtime.h"

namespace hearth::gpu::vendor {

/// The library, opened for one stream. Where Hearth was built without, opening it throws DeviceError.
class Blas {
 public:
  explicit Blas(NativeStream stream);
  ~Blas();
  /// As Stream::multiply, whose stream's GPU is current.
  void multiply(const BlasMatmul& matmul, const BlasArrays& arrays);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace hearth::gpu::vendor
