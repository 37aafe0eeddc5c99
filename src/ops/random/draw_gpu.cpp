#include "ops/gpu_support.h"
#include "ops/random/draw.h"

namespace hearth::ops {
namespace {

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) draw(T* out, int64_t count, uint32_t seed, float scale) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    out[i] = rt::from_float<T>(scale * drawn_element(seed, i));
}

/// Returns the kernel of draw_on_gpu(), which is registered like an op but is not in op_list().
ir::Kernel draw_gpu(const ir::NodeView& node) {
  const auto seed = static_cast<uint32_t>(node.attrs.integer("seed"));
  const auto scale = static_cast<float>(node.attrs.real("scale"));
  return with_storage_type(node.out_type(0).dtype, [&](auto x) {
    using T = decltype(x);
    const int64_t count = node.out_type(0).shape.num_elements();
    return ir::Kernel{.run = [=](const ir::KernelArgs& args) {
      rt::launch(draw<T>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
                 output_of<T>(args, 0), count, seed, scale);
    }};
  });
}

const GpuKernels kKernels = {{.op = "draw", .one = draw_gpu}};

}  // namespace
}  // namespace hearth::ops
