#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Arrays [count, width] of a node, and its attributes.
struct Rows {
  int64_t count, width;
  DistillAttrs attrs;
  const float* logits = nullptr;
  const float* teacher = nullptr;
  const int32_t* labels = nullptr;  ///< [count], or null

  RT_DEVICE DistillRow row(int64_t r) const { return attrs.row(logits, teacher, r, width); }
};

/// Implementation of DistillToken's `threads` for the work distributions of row_softmax.h.
template <typename Threads>
struct DistillThreads {
  Threads threads;

  RT_DEVICE int first() const { return threads.first(); }
  RT_DEVICE int step() const { return threads.step(); }
  RT_DEVICE float max(float value) const { return threads.reduce(value, rt::Max(), -3.4e38F); }
  RT_DEVICE float sum(float value) const { return threads.reduce(value, rt::Add(), 0.0F); }
};

template <typename Threads>
__global__ void __launch_bounds__(kBlockThreads) losses(float* out, Rows rows, Threads threads) {
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const float loss = rows.row(r).loss(rows.attrs.formula, DistillThreads<Threads>{threads});
    if (is_one && threads.first() == 0) out[r] = rows.attrs.skips(rows.labels, r) ? 0.0F : loss;
  });
}

template <typename Threads>
__global__ void __launch_bounds__(kBlockThreads)
    gradients(const float* dlosses, float* out, Rows rows, Threads threads) {
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const bool skips = rows.attrs.skips(rows.labels, r);
    const float dloss = dlosses[r];
    rows.row(r).slopes(rows.attrs.formula, DistillThreads<Threads>{threads}, [&](int j, float slope) {
      if (is_one) out[r * rows.width + j] = skips ? 0.0F : dloss * slope;
    });
  });
}

Rows rows_of(const NodeView& node) {
  const Shape& shape = node.in_type(DistillIn::logits).shape;
  return {.count = shape[0], .width = shape[1], .attrs = DistillAttrs(node)};
}
/// Returns `rows` with the array pointers set from a run's arguments.
Rows bound(Rows rows, const KernelArgs& args, size_t labels) {
  rows.logits = input_of<float>(args, DistillIn::logits);
  rows.teacher = input_of<float>(args, DistillIn::teacher);
  if (args.in.size() > labels) rows.labels = input_of<int32_t>(args, labels);
  return rows;
}

ir::Kernel distill_loss_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
    return {.run = [=](const KernelArgs& args) {
      rt::launch(losses<decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                 output_of<float>(args, 0), bound(rows, args, DistillIn::labels), threads);
    }};
  });
}
ir::Kernel distill_loss_grad_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
    return {.run = [=](const KernelArgs& args) {
      rt::launch(gradients<decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                 input_of<float>(args, DistillIn::dlosses), output_of<float>(args, 0),
                 bound(rows, args, DistillIn::grad_labels), threads);
    }};
  });
}

const GpuKernels kKernels = {{.op = "distill_loss", .one = distill_loss_gpu},
                             {.op = "distill_loss_grad", .one = distill_loss_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
