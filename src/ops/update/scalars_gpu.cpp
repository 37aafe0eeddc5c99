#include "ops/gpu_support.h"
#include "ops/update/scalars.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

__global__ void __launch_bounds__(rt::kWarp) increment_count(float* count, const float* factor) {
  *count = next_count(*count, *factor);
}
__global__ void __launch_bounds__(rt::kWarp)
    clip(const float* sum_squares, const float* inverse_scale, float* out, double max_norm) {
  *out = gradient_factor(*sum_squares, *inverse_scale, max_norm);
}
__global__ void __launch_bounds__(rt::kWarp)
    update_loss_scale(float* state, const float* factor, LossScale rule) {
  next_loss_scale(rule, *factor, state, state);
}
__global__ void __launch_bounds__(rt::kWarp)
    read_scale(const float* state, const float* factor, float* out, bool inverse) {
  *out = read_loss_scale(*state, *factor, inverse);
}

ir::Kernel increment_gpu(const NodeView& /*node*/) {
  const auto run = [](const KernelArgs& args) {
    rt::launch(increment_count, {1, 1}, args.stream->handle(), output_of<float>(args, 0),
               input_of<float>(args, 1));
  };
  return {.run = run};
}
ir::Kernel clip_factor_gpu(const NodeView& node) {
  const auto run = [max_norm = node.attrs.real_or("max_norm", 0)](const KernelArgs& args) {
    rt::launch(clip, {1, 1}, args.stream->handle(), input_of<float>(args, 0), input_of<float>(args, 1),
               output_of<float>(args, 0), max_norm);
  };
  return {.run = run};
}
ir::Kernel loss_scale_update_gpu(const NodeView& node) {
  const auto run = [rule = loss_scale_of(node.attrs)](const KernelArgs& args) {
    rt::launch(update_loss_scale, {1, 1}, args.stream->handle(), output_of<float>(args, 0),
               input_of<float>(args, 1), rule);
  };
  return {.run = run};
}
ir::Kernel loss_scale_read_gpu(const NodeView& node) {
  const auto run = [inverse = node.attrs.integer("inverse") != 0](const KernelArgs& args) {
    rt::launch(read_scale, {1, 1}, args.stream->handle(), input_of<float>(args, 0), input_of<float>(args, 1),
               output_of<float>(args, 0), inverse);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "increment", .one = increment_gpu},
                             {.op = "clip_factor", .one = clip_factor_gpu},
                             {.op = "loss_scale_update", .one = loss_scale_update_gpu},
                             {.op = "loss_scale_read", .one = loss_scale_read_gpu}};

}  // namespace
}  // namespace hearth::ops
