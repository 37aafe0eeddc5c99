#include "cost/kernel_share.h"

#include <algorithm>
#include <array>

namespace hearth::cost {
namespace {

using Kind = ir::KernelKind;

struct Shares {
  Kind kind;
  double amd_half, amd_full, nvidia_half, nvidia_full;
};
/// Fraction of the matmul rate that each kind of kernel reaches, in the order of KernelKind. AMD: from
/// hardware counters (bench/KERNELS.md); NVIDIA: as measured (bench/GPU-*.md).
constexpr auto kShares = std::to_array<Shares>({
    // kind, AMD 16-bit, AMD f32, NVIDIA 16-bit, NVIDIA f32
    {Kind::elementwise, 1, 1, 1, 1},
    {Kind::matmul_nn, 0.98, 0.98, 1, 1},
    {Kind::matmul_nt, 1, 1, 1, 1},
    {Kind::matmul_tn, 0.97, 0.97, 1, 1},
    {Kind::quantized_matmul_nn, 0.98, 0.98, 1, 1},
    {Kind::quantized_matmul_nt, 1, 1, 1, 1},
    {Kind::conv, 1, 1, 0.12, 0.12},
    {Kind::conv_pool, 0.7, 0.7, 0.12, 0.12},
    // These kernels use the vector units, and reach a quarter of their rate: each multiplication needs two
    // conversions and the loads of both factors. In 16 bits, that is a small fraction of the matmul rate; if
    // each channel is a group (depthwise), computing addresses takes even longer.
    {Kind::grouped_conv, 0.067, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv, 0.016, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv_grad_input, 0.015, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv_grad_weight, 0.025, 0.25, 0.016, 0.25},
    {Kind::attention, 0.67, 0.67, 0.12, 0.12},
    // Smaller heads compute as many exponentials with fewer multiplications. The NVIDIA rates were measured
    // with kernels that did not store dS.
    {Kind::attention_grad, 0.57, 0.74, 0.082, 0.082},
    {Kind::attention_grad_large_heads, 0.75, 0.54, 0.063, 0.063},
    {Kind::head, 0.94, 0.94, 0.72, 0.72},
    // Computing which elements to read takes most of the time.
    {Kind::resize, 0.0144, 0.027, 1, 1},
    {Kind::simota, 0.017, 0.017, 1, 1},
    // GPUs have low f64 rates.
    {Kind::rope_table, 0.029, 0.029, 1, 1},
    {Kind::timestep_embedding, 0.016, 0.016, 1, 1},
});
static_assert([] {
  for (size_t i = 0; i < kShares.size(); ++i)
    if (kShares[i].kind != static_cast<Kind>(i)) return false;
  return kShares.back().kind == Kind::timestep_embedding;
}());

/// Quantized matmuls that dequantize the weights first lose the time of kDequantizedRows rows of the product.
/// AMD's kernels read the quantized weights directly for up to kManyRows rows; NVIDIA's always dequantize,
/// because the vendor's library is faster.
constexpr double kDequantizedRows = 130, kManyRows = 512;

struct NamedRates {
  std::string_view op;
  OpRates rates;
};
/// Rates of ResNet-50's ops relative to the model, measured by GPU events on an H200
/// (bench/GPU-NVIDIA-H200.md).
constexpr NamedRates kNvidiaRates[] = {
    {"conv2d_moments", {.conv = 0.82}},  {"conv2d_grad_input", {.conv = 1.2}},
    {"batch_norm", {.bandwidth = 0.6}},  {"batch_norm_grad", {.bandwidth = 0.41}},
    {"max_pool2d", {.bandwidth = 0.42}}, {"max_pool2d_grad", {.bandwidth = 0.22}},
};

}  // namespace

OpRates op_rates(std::string_view op, Vendor vendor) {
  if (vendor != Vendor::nvidia) return {};
  const auto* const found = std::ranges::find(kNvidiaRates, op, &NamedRates::op);
  return found == std::end(kNvidiaRates) ? OpRates{} : found->rates;
}

double kernel_share(const ir::Cost& cost, bool half, Vendor vendor) {
  if (vendor == Vendor::none) return 1;
  const bool amd = vendor == Vendor::amd;
  const Shares& row = kShares[static_cast<size_t>(cost.kernel)];
  double share = amd ? (half ? row.amd_half : row.amd_full) : (half ? row.nvidia_half : row.nvidia_full);
  const bool quantized = cost.kernel == Kind::quantized_matmul_nn || cost.kernel == Kind::quantized_matmul_nt;
  if (quantized && (!amd || cost.rows > kManyRows)) share *= cost.rows / (cost.rows + kDequantizedRows);
  return share * cost.filled;
}

}  // namespace hearth::cost
