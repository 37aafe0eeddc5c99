#include "ops/gpu_support.h"
#include "ops/loss/dpo_formula.h"
#include "ops/loss/loss.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Computes the losses; one thread per pair.
__global__ void __launch_bounds__(kBlockThreads)
    losses(const float* logps, const float* reference, float* out, int64_t pairs, DpoFormula formula) {
  const int64_t i = first_element();
  if (i < pairs) out[i] = static_cast<float>(formula.loss(formula.margin(logps, reference, i)));
}
__global__ void __launch_bounds__(kBlockThreads)
    gradients(const float* logps, const float* reference, const float* dlosses, float* out, int64_t pairs,
              DpoFormula formula) {
  const int64_t i = first_element();
  if (i >= pairs) return;
  const double slope = static_cast<double>(dlosses[i]) * formula.slope(formula.margin(logps, reference, i));
  out[2 * i] = static_cast<float>(slope);
  out[2 * i + 1] = static_cast<float>(-slope);
}

DpoFormula formula_of(const NodeView& node) {
  return {.beta = node.attrs.real_or("beta", 0.1), .smoothing = node.attrs.real_or("smoothing", 0)};
}

ir::Kernel dpo_loss_gpu(const NodeView& node) {
  const auto run = [formula = formula_of(node),
                    pairs = node.in_type(0).shape[0] / 2](const KernelArgs& args) {
    rt::launch(losses, {ceil_div(pairs, kBlockThreads), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), input_of<float>(args, 1), output_of<float>(args, 0), pairs, formula);
  };
  return {.run = run};
}
ir::Kernel dpo_loss_grad_gpu(const NodeView& node) {
  const auto run = [formula = formula_of(node),
                    pairs = node.in_type(0).shape[0] / 2](const KernelArgs& args) {
    rt::launch(gradients, {ceil_div(pairs, kBlockThreads), kBlockThreads}, args.stream->handle(),
               input_of<float>(args, 0), input_of<float>(args, 1), input_of<float>(args, 2),
               output_of<float>(args, 0), pairs, formula);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "dpo_loss", .one = dpo_loss_gpu},
                             {.op = "dpo_loss_grad", .one = dpo_loss_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
