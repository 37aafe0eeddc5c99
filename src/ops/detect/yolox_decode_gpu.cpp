#include "ops/detect/anchor_grid.h"
#include "ops/detect/detect.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

__global__ void __launch_bounds__(kBlockThreads)
    decode(const float* raw, float* out, int64_t count, AnchorGrid grid) {
  const int64_t width = 5 + grid.classes;
  for (int64_t at = first_element(); at < count; at += element_stride()) {
    const auto anchor = static_cast<int>(at / width % grid.anchors);
    out[at] = grid.decoded(anchor, static_cast<int>(at % width), raw[at]);
  }
}

ir::Kernel yolox_decode_gpu(const NodeView& node) {
  const auto run = [grid = AnchorGrid::of(node),
                    count = node.in_type(0).shape.num_elements()](const KernelArgs& args) {
    rt::launch(decode, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), output_of<float>(args, 0), count, grid);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "yolox_decode", .one = yolox_decode_gpu}};

}  // namespace
}  // namespace hearth::ops
