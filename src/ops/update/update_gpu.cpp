#include "ops/gpu_support.h"
#include "ops/update/adam_options.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

struct Sgd {
  float momentum;
  float weight_decay;
  bool nesterov;
};

/// Nothing changes for a negative factor: the gradients were not finite.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    sgd(float* param, const T* grad, const float* lr, const float* factor, float* buffer, int64_t count,
        Sgd rule) {
  if (*factor < 0) return;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const float g = *factor * rt::to_float(grad[i]) + rule.weight_decay * param[i];
    float direction = g;
    if (buffer != nullptr) {
      const float b = rule.momentum * buffer[i] + g;
      buffer[i] = b;
      direction = rule.nesterov ? g + rule.momentum * b : b;
    }
    param[i] -= *lr * direction;
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    adamw(float* param, const T* grad, const float* lr, const float* factor, float* m, float* v,
          const float* step_count, int64_t count, AdamOptions options) {
  if (*factor < 0) return;
  const double rate = *lr, steps = *step_count;
  const auto keep = static_cast<float>(1 - rate * options.weight_decay);
  const auto size = static_cast<float>(rate / (1 - pow(options.beta1, steps)));
  const auto inverse_root = static_cast<float>(1 / sqrt(1 - pow(options.beta2, steps)));
  const auto one_beta1 = static_cast<float>(1 - options.beta1), beta2 = static_cast<float>(options.beta2);
  const auto one_beta2 = static_cast<float>(1 - options.beta2), eps = static_cast<float>(options.eps);
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const float g = *factor * rt::to_float(grad[i]);
    const float mi = m[i] + one_beta1 * (g - m[i]);
    const float vi = beta2 * v[i] + one_beta2 * g * g;
    m[i] = mi;
    v[i] = vi;
    param[i] = keep * param[i] - size * (mi / (sqrtf(vi) * inverse_root + eps));
  }
}

template <typename T>
ir::Kernel make_sgd(const NodeView& node) {
  const Sgd rule{.momentum = static_cast<float>(node.attrs.real_or("momentum", 0)),
                 .weight_decay = static_cast<float>(node.attrs.real_or("weight_decay", 0)),
                 .nesterov = node.attrs.integer_or("nesterov", 0) != 0};
  const int64_t count = node.in_type(0).shape.num_elements();
  const bool with_momentum = node.has_input(4);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(sgd<T>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               output_of<float>(args, 0), input_of<T>(args, 1), input_of<float>(args, 2),
               input_of<float>(args, 3), with_momentum ? output_of<float>(args, 1) : nullptr, count, rule);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_adamw(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const AdamOptions options = adam_options(node.attrs);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(adamw<T>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               output_of<float>(args, 0), input_of<T>(args, 1), input_of<float>(args, 2),
               input_of<float>(args, 3), output_of<float>(args, 1), output_of<float>(args, 2),
               input_of<float>(args, 6), count, options);
  };
  return {.run = run};
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) add_gradient(float* sums, const T* grad, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) sums[i] += rt::to_float(grad[i]);
}
template <typename T>
ir::Kernel make_accumulate(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [=](const KernelArgs& args) {
    rt::launch(add_gradient<T>, {num_stride_blocks(count), kBlockThreads}, args.stream->handle(),
               output_of<float>(args, 0), input_of<T>(args, 1), count);
  };
  return {.run = run};
}

}  // namespace

ir::Kernel zero_gpu(const NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  const auto run = [=](const KernelArgs& args) {
    args.stream->fill_zero(static_cast<std::byte*>(args.out[0]), num_bytes);
  };
  return {.run = run};
}
ir::Kernel accumulate_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype,
                           [&](auto grad) { return make_accumulate<decltype(grad)>(node); });
}
ir::Kernel sgd_update_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype, [&](auto grad) { return make_sgd<decltype(grad)>(node); });
}
ir::Kernel adamw_update_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype,
                           [&](auto grad) { return make_adamw<decltype(grad)>(node); });
}

}  // namespace hearth::ops
