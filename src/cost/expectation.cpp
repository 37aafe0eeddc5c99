#include "cost/expectation.h"

#include <array>

namespace hearth::cost {
namespace {

using Kind = ir::KernelKind;

/// The fits in bench/calibration.json, which bench/calibrate.py computes.
constexpr auto kFits = std::to_array<ClassFit>({
    {KernelClass::matmul, "matmul", 1.39, 1.176},
    {KernelClass::attention, "attention", 1.691, 1.161},
    {KernelClass::convolution, "convolution", 1.39, 1.27},
    {KernelClass::quantized, "quantized", 1.39, 1.27},
    {KernelClass::memory, "memory", 1.493, 1.27},
});
/// Fractions of the bound's rates that seconds_of assumes for AMD's GPUs: of matrix instructions
/// (bench/gpu_model.py) and of the bandwidth (device.cpp).
constexpr double kModeledRate = 0.82, kModeledBandwidth = 0.85;
/// Error of the model of NVIDIA's GPUs, whose rates are measured (tests/cost/measured_steps_test.cpp).
constexpr double kMeasuredError = 1.15;

KernelClass class_of(Kind kind) {
  switch (kind) {
    case Kind::matmul_nn:
    case Kind::matmul_nt:
    case Kind::matmul_tn:
    case Kind::head:
      return KernelClass::matmul;
    case Kind::quantized_matmul_nn:
    case Kind::quantized_matmul_nt:
      return KernelClass::quantized;
    case Kind::conv:
    case Kind::conv_pool:
      return KernelClass::convolution;
    case Kind::attention:
    case Kind::attention_grad:
    case Kind::attention_grad_large_heads:
      return KernelClass::attention;
    default:
      return KernelClass::memory;
  }
}

}  // namespace

std::span<const ClassFit> class_fits() { return kFits; }

Expectation expectation_of(Kind kind, bool waits_for_memory, Vendor vendor) {
  if (vendor == Vendor::none) return {};
  if (vendor == Vendor::nvidia) return {1 / kMeasuredError, kMeasuredError};
  const KernelClass kernels = waits_for_memory ? KernelClass::memory : class_of(kind);
  const ClassFit& fit = kFits[static_cast<size_t>(kernels)];
  const double factor = fit.factor * (kernels == KernelClass::memory ? kModeledBandwidth : kModeledRate);
  return {factor / fit.error, factor * fit.error};
}

}  // namespace hearth::cost
