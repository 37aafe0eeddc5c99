#include "ops/gpu_support.h"
#include "ops/loss/loss.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int kWarps = kBlockThreads / rt::kWarp;

/// A warp's column of the first largest logit.
template <typename T>
RT_DEVICE int first_largest(const T* row, int width) {
  float most = rt::to_float(row[0]);
  int at = 0;
  for (int k = rt::lane(); k < width; k += rt::kWarp) {
    const float logit = rt::to_float(row[k]);
    if (logit > most) {
      most = logit;
      at = k;
    }
  }
  for (int mask = rt::kWarp / 2; mask > 0; mask /= 2) {
    const float other = rt::shuffle_xor(most, mask);
    const int other_at = rt::shuffle_xor(at, mask);
    if (other > most || (other == most && other_at < at)) {
      most = other;
      at = other_at;
    }
  }
  return at;
}

/// One block; its warps take the rows in turn. Counts stay whole numbers, in whatever order they are added.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    count(const T* logits, const int32_t* labels, float* out, int64_t rows, int width) {
  float correct = 0;
  for (int64_t r = static_cast<int>(threadIdx.x) / rt::kWarp; r < rows; r += kWarps) {
    const int at = first_largest(logits + r * width, width);
    if (rt::lane() == 0 && at == labels[r]) correct += 1;
  }
  correct = rt::reduce_block(correct, rt::Add(), 0.0F);
  if (threadIdx.x == 0) *out = correct;
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Shape& logits = node.in_type(0).shape;
  const auto run = [rows = logits[0], width = static_cast<int>(logits[1])](const KernelArgs& args) {
    rt::launch(count<T>, {1, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<int32_t>(args, 1), output_of<float>(args, 0), rows, width);
  };
  return {.run = run};
}

ir::Kernel count_correct_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto logit) { return make<decltype(logit)>(node); });
}

const GpuKernels kKernels = {{.op = "count_correct", .one = count_correct_gpu}};

}  // namespace
}  // namespace hearth::ops
