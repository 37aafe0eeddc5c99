#include "cost/kernel_share.h"

#include <array>

namespace hearth::cost {
namespace {

using Kind = ir::KernelKind;

struct Shares {
  Kind kind;
  double amd_half, amd_full, nvidia_half, nvidia_full;
};
/// In the order of KernelKind. AMD: by the counters in bench/KERNELS.md; NVIDIA: as measured
/// (bench/GPU-*.md).
constexpr auto kShares = std::to_array<Shares>({
    // kind, AMD in 16 bits and f32, NVIDIA in 16 bits and f32
    {Kind::elementwise, 1, 1, 1, 1},
    {Kind::matmul_nn, 0.98, 0.98, 1, 1},
    {Kind::matmul_nt, 1, 1, 1, 1},
    {Kind::matmul_tn, 0.97, 0.97, 1, 1},
    {Kind::quantized_matmul_nn, 0.98, 0.98, 1, 1},
    {Kind::quantized_matmul_nt, 1, 1, 1, 1},
    {Kind::conv, 1, 1, 0.12, 0.12},
    {Kind::conv_pool, 0.7, 0.7, 0.12, 0.12},
    // A multiplication, two conversions and the loads of both factors: a quarter of the vector units' rate.
    // In 16 bits, computing addresses takes longest where each channel is a group.
    {Kind::grouped_conv, 0.067, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv, 0.016, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv_grad_input, 0.015, 0.25, 0.016, 0.25},
    {Kind::depthwise_conv_grad_weight, 0.025, 0.25, 0.016, 0.25},
    {Kind::attention, 0.67, 0.67, 0.12, 0.12},
    {Kind::attention_grad, 0.74, 0.74, 0.063, 0.063},
    // Larger heads leave registers for fewer warps.
    {Kind::attention_grad_large_heads, 0.54, 0.54, 0.063, 0.063},
    {Kind::head, 0.94, 0.94, 1, 1},
    // Computing which elements are read takes longest.
    {Kind::resize, 0.0115, 0.0215, 1, 1},
    {Kind::simota, 0.017, 0.017, 1, 1},
    // GPUs are slow at doubles.
    {Kind::rope_table, 0.029, 0.029, 1, 1},
    {Kind::timestep_embedding, 0.016, 0.016, 1, 1},
});
static_assert([] {
  for (size_t i = 0; i < kShares.size(); ++i)
    if (kShares[i].kind != static_cast<Kind>(i)) return false;
  return kShares.back().kind == Kind::timestep_embedding;
}());

/// Dequantizing the weights first takes as long as this many rows of the product. AMD's kernels with few rows
/// read quantized weights instead, where no library is faster, as one is on NVIDIA's.
constexpr double kDequantizedRows = 130, kManyRows = 512;

}  // namespace

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
