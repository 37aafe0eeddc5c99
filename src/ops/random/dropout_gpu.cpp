#include "ops/gpu_support.h"
#include "ops/random/mask.h"
#include "ops/random/random.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Applies dropout; one thread per four elements, whose factors come from one Philox block.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    drop(const T* in, const int64_t* counter, T* out, int64_t count, MaskKey key) {
  key.step = static_cast<uint32_t>(counter[0]);
  key.micro_batch = static_cast<uint32_t>(counter[1]);
  for (int64_t group = first_element(); group * 4 < count; group += element_stride()) {
    float factors[4];
    mask_factors(key, static_cast<uint64_t>(group), factors);
    for (int j = 0; j < 4; ++j) {
      const int64_t i = group * 4 + j;
      if (i < count) out[i] = rt::from_float<T>(rt::to_float(in[i]) * factors[j]);
    }
  }
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [count, key = mask_key(node.attrs)](const KernelArgs& args) {
    rt::launch(drop<T>, {num_stride_blocks(ceil_div(count, 4)), kBlockThreads}, args.stream->handle(),
               input_of<T>(args, 0), input_of<int64_t>(args, 1), output_of<T>(args, 0), count, key);
  };
  return {.run = run};
}

ir::Kernel dropout_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make<decltype(x)>(node); });
}

const GpuKernels kKernels = {{.op = "dropout", .one = dropout_gpu}};

}  // namespace
}  // namespace hearth::ops
