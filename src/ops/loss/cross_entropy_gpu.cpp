#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

template <typename T>
RT_DEVICE float mean_of(const T* row, int width) {
  float sum = 0;
  for (int k = static_cast<int>(threadIdx.x); k < width; k += kBlockThreads) sum += rt::to_float(row[k]);
  return rt::reduce_block(sum, rt::Add(), 0.0F) / static_cast<float>(width);
}

/// A block per row; a label outside of the row gives NaN.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    losses(const T* logits, const int32_t* labels, float* out, int width, float smoothing) {
  const T* row = logits + static_cast<int64_t>(blockIdx.x) * width;
  const float log_sum = softmax_of_row(row, width).log_sum(), mean = mean_of(row, width);
  if (threadIdx.x != 0) return;
  const int label = labels[blockIdx.x];
  if (label < 0 || label >= width) {
    out[blockIdx.x] = nanf("");
    return;
  }
  const float of_label = log_sum - rt::to_float(row[label]);
  out[blockIdx.x] = (1 - smoothing) * of_label + smoothing * (log_sum - mean);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    gradients(const T* logits, const int32_t* labels, const float* dlosses, T* out, int width,
              float smoothing) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * width;
  const int label = labels[blockIdx.x];
  const bool valid = label >= 0 && label < width;
  const float log_sum = softmax_of_row(logits + at, width).log_sum();
  const float total = valid ? log_sum : nanf("");
  const float everywhere = smoothing / static_cast<float>(width);
  for (int k = static_cast<int>(threadIdx.x); k < width; k += kBlockThreads) {
    const float target = everywhere + (k == label ? 1 - smoothing : 0.0F);
    out[at + k] =
        rt::from_float<T>(dlosses[blockIdx.x] * (expf(rt::to_float(logits[at + k]) - total) - target));
  }
}

struct Rows {
  int64_t count;
  int width;
  float smoothing;
};
Rows rows_of(const NodeView& node) {
  const ir::Type& logits = node.in_type(0);
  return {.count = logits.shape[0],
          .width = static_cast<int>(logits.shape[1]),
          .smoothing = static_cast<float>(node.attrs.real_or("smoothing", 0))};
}

template <typename T>
ir::Kernel make_losses(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(losses<T>, {rows.count, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<int32_t>(args, 1), output_of<float>(args, 0), rows.width, rows.smoothing);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_gradients(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(gradients<T>, {rows.count, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<int32_t>(args, 1), input_of<float>(args, 2), output_of<T>(args, 0), rows.width,
               rows.smoothing);
  };
  return {.run = run};
}

ir::Kernel softmax_cross_entropy_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto logit) { return make_losses<decltype(logit)>(rows_of(node)); });
}
ir::Kernel softmax_cross_entropy_grad_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto logit) { return make_gradients<decltype(logit)>(rows_of(node)); });
}

const GpuKernels kKernels = {{.op = "softmax_cross_entropy", .one = softmax_cross_entropy_gpu},
                             {.op = "softmax_cross_entropy_grad", .one = softmax_cross_entropy_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
