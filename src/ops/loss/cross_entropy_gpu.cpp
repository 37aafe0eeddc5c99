#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

struct Rows {
  int64_t count;
  int width;
  float smoothing;
  bool ignores;
  int ignore;
  const int32_t* labels;
  const float* class_weights;  ///< [width], or null

  /// Returns the weight of a label: 0 for `ignore`, NaN for an invalid label, otherwise the class weight
  /// (default 1).
  RT_DEVICE float weight_of(int label) const {
    if (ignores && label == ignore) return 0;
    if (label < 0 || label >= width) return nanf("");
    return class_weights == nullptr ? 1.0F : class_weights[label];
  }
};

template <typename Threads, typename T>
RT_DEVICE float mean_of(Threads threads, const T* row, int width) {
  float sum = 0;
  for (int k = threads.first(); k < width; k += threads.step()) sum += rt::to_float(row[k]);
  return threads.reduce(sum, rt::Add(), 0.0F) / static_cast<float>(width);
}

template <typename T, typename Threads>
__global__ void __launch_bounds__(kBlockThreads)
    losses(const T* logits, float* out, Rows rows, Threads threads) {
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const T* row = logits + r * rows.width;
    const float log_sum = softmax_of_row(threads, row, rows.width).log_sum();
    const float mean = rows.smoothing > 0 ? mean_of(threads, row, rows.width) : 0.0F;
    if (!is_one || threads.first() != 0) return;
    const int label = rows.labels[r];
    float loss = rows.weight_of(label);
    if (loss != 0 && label >= 0 && label < rows.width) {
      const float of_label = log_sum - rt::to_float(row[label]);
      loss *= (1 - rows.smoothing) * of_label + rows.smoothing * (log_sum - mean);
    }
    out[r] = loss;
  });
}

template <typename T, typename Threads>
__global__ void __launch_bounds__(kBlockThreads)
    gradients(const T* logits, const float* dlosses, T* out, Rows rows, Threads threads) {
  const float everywhere = rows.smoothing / static_cast<float>(rows.width);
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const int64_t at = r * rows.width;
    const float log_sum = softmax_of_row(threads, logits + at, rows.width).log_sum();
    const int label = rows.labels[r];
    const float weight = rows.weight_of(label), factor = dlosses[r] * weight;
    if (!is_one) return;
    for (int k = threads.first(); k < rows.width; k += threads.step()) {
      const float target = everywhere + (k == label ? 1 - rows.smoothing : 0.0F);
      const float slope = factor * (expf(rt::to_float(logits[at + k]) - log_sum) - target);
      out[at + k] = rt::from_float<T>(weight == 0 ? 0.0F : slope);
    }
  });
}

Rows rows_of(const NodeView& node) {
  const ir::Type& logits = node.in_type(0);
  return {.count = logits.shape[0],
          .width = static_cast<int>(logits.shape[1]),
          .smoothing = static_cast<float>(node.attrs.real_or("smoothing", 0)),
          .ignores = node.attrs.contains("ignore"),
          .ignore = static_cast<int>(node.attrs.integer_or("ignore", 0)),
          .labels = nullptr,
          .class_weights = nullptr};
}
/// Returns `rows` with the array pointers set from a run's arguments.
Rows bound(Rows rows, const KernelArgs& args, size_t class_weights) {
  rows.labels = input_of<int32_t>(args, 1);
  if (args.in.size() > class_weights) rows.class_weights = input_of<float>(args, class_weights);
  return rows;
}

ir::Kernel softmax_cross_entropy_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_storage_type(node.in_type(0).dtype, [&](auto logit) {
    return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
      using T = decltype(logit);
      return {.run = [=](const KernelArgs& args) {
        rt::launch(losses<T, decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                   input_of<T>(args, 0), output_of<float>(args, 0), bound(rows, args, 2), threads);
      }};
    });
  });
}
ir::Kernel softmax_cross_entropy_grad_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_storage_type(node.in_type(0).dtype, [&](auto logit) {
    return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
      using T = decltype(logit);
      return {.run = [=](const KernelArgs& args) {
        rt::launch(gradients<T, decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                   input_of<T>(args, 0), input_of<float>(args, 2), output_of<T>(args, 0),
                   bound(rows, args, 3), threads);
      }};
    });
  });
}

const GpuKernels kKernels = {{.op = "softmax_cross_entropy", .one = softmax_cross_entropy_gpu},
                             {.op = "softmax_cross_entropy_grad", .one = softmax_cross_entropy_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
