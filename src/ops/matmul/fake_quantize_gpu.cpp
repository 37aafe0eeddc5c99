#include "base/block_format.h"
#include "ops/gpu_support.h"
#include "ops/matmul/fake_quantize.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

static_assert(kBlockElements == rt::kWarp, "a warp rounds a block, one element per lane");

/// Returns the element of the first lane with the largest magnitude.
RT_DEVICE float extreme_of_lanes(float element) {
  const float largest = rt::reduce_warp(std::fabs(element), rt::Max());
  uint32_t lanes = rt::ballot(std::fabs(element) == largest);
  int first = 0;
  for (; lanes > 1 && (lanes & 1) == 0; lanes >>= 1) ++first;
  return rt::shuffle(element, first);
}

/// Rounds blocks of elements; one warp per block.
__global__ void __launch_bounds__(kBlockThreads)
    round_blocks(const float* x, const int64_t* counter, float* y, int64_t num_blocks, BlockFormat format,
                 int64_t first_step) {
  const bool off = counter != nullptr && *counter < first_step;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * (kBlockThreads / rt::kWarp);
  for (int64_t block = first_element() / rt::kWarp; block < num_blocks; block += warps) {
    const int64_t at = block * kBlockElements + rt::lane();
    const float element = x[at];
    const float scale = block_scale(format, extreme_of_lanes(element));
    const float stored = rt::to_float(rt::from_float<rt::f16>(scale));
    y[at] = off ? element : stored * block_code(format, element, inverse_of_scale(scale));
  }
}

ir::Kernel fake_quantize_gpu(const NodeView& node) {
  const int64_t num_elements = node.in_type(0).shape.num_elements();
  const auto run = [=, format = *value_named<BlockFormat>(node.attrs.text("format")),
                    first_step = node.attrs.integer("first_step"),
                    has_counter = node.in.size() > 1](const KernelArgs& args) {
    rt::launch(round_blocks, {num_stride_blocks(num_elements), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), has_counter ? input_of<int64_t>(args, 1) : nullptr,
               output_of<float>(args, 0), num_elements / kBlockElements, format, first_step);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "fake_quantize", .one = fake_quantize_gpu}};

}  // namespace
}  // namespace hearth::ops
