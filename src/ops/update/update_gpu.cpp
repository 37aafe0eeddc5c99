#include "base/e5m2.h"
#include "base/pruning.h"
#include "ops/many_tensors.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Number of elements per thread block.
constexpr int kRun = 4096;

/// Scalar inputs that are equal for all tensors of a launch; null if the op does not have the input.
struct Scalars {
  const float* lr;
  const float* factor;
  const float* step_count;
};

/// Base of updates without options and scalars.
struct PlainUpdate {
  static constexpr bool kHasFactor = false;
  using Options = int;
  using Step = int;
  static Scalars scalars(const KernelArgs& /*args*/) { return {}; }
  RT_DEVICE static Step begin(int options, const Scalars& /*scalars*/) { return options; }
};

/// Each of the following structs is a template argument of update(): it defines the arrays of a tensor
/// (Tensor), the constants of a step (Step, begin()) and the update of one element (move()) of an op.
template <typename T>
struct Sgd {
  struct Tensor {
    float* param;
    const T* grad;
    float* buffer;
  };
  static constexpr bool kHasFactor = true;
  using Options = SgdRule;
  using Step = SgdRule;
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<T>(args, 1),
            args.out.size() > 1 ? output_of<float>(args, 1) : nullptr};
  }
  static Scalars scalars(const KernelArgs& args) {
    return {input_of<float>(args, 2), input_of<float>(args, 3), nullptr};
  }
  RT_DEVICE static Step begin(const Options& rule, const Scalars& scalars) {
    Step step = rule;
    step.rate = *scalars.lr;
    step.factor = *scalars.factor;
    return step;
  }
  RT_DEVICE static void move(const Step& step, const Tensor& t, int64_t i) {
    const float grad = rt::to_float(t.grad[i]);
    if (t.buffer == nullptr) {
      step.move(grad, t.param[i]);
    } else {
      step.move(grad, t.param[i], t.buffer[i]);
    }
  }
};

template <typename T>
struct Adamw {
  struct Tensor {
    float* param;
    const T* grad;
    float* m;
    float* v;
  };
  static constexpr bool kHasFactor = true;
  using Options = AdamOptions;
  using Step = AdamStep;
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<T>(args, 1), output_of<float>(args, 1),
            output_of<float>(args, 2)};
  }
  static Scalars scalars(const KernelArgs& args) {
    return {input_of<float>(args, 2), input_of<float>(args, 3), input_of<float>(args, 6)};
  }
  RT_DEVICE static Step begin(const Options& options, const Scalars& scalars) {
    return adam_step(options, *scalars.lr, *scalars.factor, *scalars.step_count);
  }
  RT_DEVICE static void move(const Step& step, const Tensor& t, int64_t i) {
    step.move(rt::to_float(t.grad[i]), t.param[i], t.m[i], t.v[i]);
  }
};

template <typename T>
struct Lion {
  struct Tensor {
    float* param;
    const T* grad;
    float* m;
  };
  static constexpr bool kHasFactor = true;
  using Options = LionRule;
  using Step = LionRule;
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<T>(args, 1), output_of<float>(args, 1)};
  }
  static Scalars scalars(const KernelArgs& args) {
    return {input_of<float>(args, 2), input_of<float>(args, 3), nullptr};
  }
  RT_DEVICE static Step begin(const Options& rule, const Scalars& scalars) {
    Step step = rule;
    step.begin(*scalars.lr, *scalars.factor);
    return step;
  }
  RT_DEVICE static void move(const Step& step, const Tensor& t, int64_t i) {
    step.move(rt::to_float(t.grad[i]), t.param[i], t.m[i]);
  }
};

struct Ema {
  struct Tensor {
    float* ema;
    const float* param;
  };
  static constexpr bool kHasFactor = true;
  using Options = float;  ///< 1 - decay
  using Step = float;     ///< weight of the parameter in the average
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<float>(args, 1)};
  }
  static Scalars scalars(const KernelArgs& args) {
    return {nullptr, input_of<float>(args, 2), args.in.size() > 3 ? input_of<float>(args, 3) : nullptr};
  }
  RT_DEVICE static Step begin(float one_decay, const Scalars& scalars) {
    return scalars.step_count == nullptr ? one_decay : ema_weight(one_decay, *scalars.step_count);
  }
  RT_DEVICE static void move(float weight, const Tensor& t, int64_t i) {
    t.ema[i] += weight * (t.param[i] - t.ema[i]);
  }
};

template <typename T>
struct Accumulate : PlainUpdate {
  struct Tensor {
    float* sums;
    const T* grad;
  };
  static Tensor tensor(const KernelArgs& args) { return {output_of<float>(args, 0), input_of<T>(args, 1)}; }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    t.sums[i] += rt::to_float(t.grad[i]);
  }
};

struct Feedback : PlainUpdate {
  struct Tensor {
    float* gradient;
    float* error;
  };
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), output_of<float>(args, 1)};
  }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    const float whole = t.gradient[i] + t.error[i];
    t.gradient[i] = rt::to_float(rt::from_float<rt::bf16>(whole));
    t.error[i] = rounding_error(whole, t.gradient[i]);
  }
};

struct Fp8Feedback : PlainUpdate {
  struct Tensor {
    float* sent;
    float* error;
    const float* squares;
  };
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), output_of<float>(args, 1), input_of<float>(args, 2)};
  }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    const float scale = e5m2_scale(*t.squares), whole = t.error[i];
    t.sent[i] = round_to_e5m2(whole * (1 / scale));
    t.error[i] = rounding_error(whole, t.sent[i] * scale);
  }
};

struct Fp8Restore : PlainUpdate {
  struct Tensor {
    const float* x;
    float* y;
    const float* squares;
  };
  static Tensor tensor(const KernelArgs& args) {
    return {input_of<float>(args, 0), output_of<float>(args, 0), input_of<float>(args, 1)};
  }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    t.y[i] = t.x[i] * e5m2_scale(*t.squares);
  }
};

template <typename T>
struct MaskGradient : PlainUpdate {
  struct Tensor {
    T* out;
    const T* grad;
    const uint8_t* mask;
  };
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<T>(args, 0), input_of<T>(args, 0), input_of<uint8_t>(args, 1)};
  }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    t.out[i] = is_pruned(t.mask, i) ? rt::from_float<T>(0) : t.grad[i];
  }
};

struct ApplyMask : PlainUpdate {
  struct Tensor {
    float* values;
    const uint8_t* mask;
  };
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<uint8_t>(args, 1)};
  }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) {
    if (is_pruned(t.mask, i)) t.values[i] = 0;
  }
};

template <typename T>
struct PruneScore {
  struct Tensor {
    float* score;
    const T* grad;
    const float* weight;  ///< null: the score is the gradient
  };
  static constexpr bool kHasFactor = true;
  using Options = int;
  using Step = float;  ///< factor of the gradient
  static Tensor tensor(const KernelArgs& args) {
    return {output_of<float>(args, 0), input_of<T>(args, 1),
            args.in.size() > 3 ? input_of<float>(args, 3) : nullptr};
  }
  static Scalars scalars(const KernelArgs& args) { return {nullptr, input_of<float>(args, 2), nullptr}; }
  RT_DEVICE static Step begin(int /*options*/, const Scalars& scalars) { return *scalars.factor; }
  RT_DEVICE static void move(float factor, const Tensor& t, int64_t i) {
    const float grad = factor * rt::to_float(t.grad[i]);
    t.score[i] = t.weight == nullptr ? grad : t.score[i] - grad * t.weight[i];
  }
};

struct Zero : PlainUpdate {
  struct Tensor {
    float* values;
  };
  static Tensor tensor(const KernelArgs& args) { return {output_of<float>(args, 0)}; }
  RT_DEVICE static void move(int /*step*/, const Tensor& t, int64_t i) { t.values[i] = 0; }
};

/// Updates all tensors of a launch. A negative factor, which marks non-finite gradients, skips the step.
template <typename Rule>
__global__ void __launch_bounds__(kBlockThreads)
    update(ManyTensors<typename Rule::Tensor> all, typename Rule::Options options, Scalars scalars) {
  if constexpr (Rule::kHasFactor) {
    if (*scalars.factor < 0) return;
  }
  RT_SHARED(of_block, typename Rule::Step);
  if (threadIdx.x == 0) of_block = Rule::begin(options, scalars);
  rt::sync_block();
  const typename Rule::Step step = of_block;
  const BlockRun run = run_of_block(all);
  const typename Rule::Tensor tensor = all.tensors[run.tensor];
  for (int64_t i = run.begin + threadIdx.x; i < run.end; i += kBlockThreads) Rule::move(step, tensor, i);
}

template <typename Rule>
ir::Kernel make(std::span<const NodeView> nodes, const typename Rule::Options& options) {
  const auto run = [options, counts = counts_of(nodes)](const KernelArgs& args) {
    const size_t num_nodes = counts.size();
    const Scalars scalars = Rule::scalars(args_of(args, num_nodes, 0));
    for_many_tensors<typename Rule::Tensor>(
        counts, kRun, [&](size_t i) { return Rule::tensor(args_of(args, num_nodes, i)); },
        [&](const ManyTensors<typename Rule::Tensor>& all) {
          rt::launch(update<Rule>, {all.num_blocks, kBlockThreads}, args.stream->handle(), all, options,
                     scalars);
        });
  };
  return {.run = run};
}

DType gradient_of(std::span<const NodeView> nodes) { return nodes[0].in_type(1).dtype; }

ir::Kernel zero_gpu(std::span<const NodeView> nodes) {
  if (nodes[0].in_type(0).dtype == DType::f32) return make<Zero>(nodes, 0);
  std::vector<int64_t> num_bytes;
  for (const NodeView& node : nodes) num_bytes.push_back(node.in_type(0).num_bytes());
  const auto run = [=](const KernelArgs& args) {
    for (size_t i = 0; i < num_bytes.size(); ++i)
      args.stream->fill_zero(static_cast<std::byte*>(args.out[i]), num_bytes[i]);
  };
  return {.run = run};
}
ir::Kernel accumulate_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(gradient_of(nodes),
                           [&](auto grad) { return make<Accumulate<decltype(grad)>>(nodes, 0); });
}
ir::Kernel bf16_feedback_gpu(std::span<const NodeView> nodes) { return make<Feedback>(nodes, 0); }
ir::Kernel fp8_feedback_gpu(std::span<const NodeView> nodes) { return make<Fp8Feedback>(nodes, 0); }
ir::Kernel fp8_restore_gpu(std::span<const NodeView> nodes) { return make<Fp8Restore>(nodes, 0); }
ir::Kernel sgd_update_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(gradient_of(nodes), [&](auto grad) {
    return make<Sgd<decltype(grad)>>(nodes, sgd_rule(nodes[0].attrs));
  });
}
ir::Kernel adamw_update_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(gradient_of(nodes), [&](auto grad) {
    return make<Adamw<decltype(grad)>>(nodes, adam_options(nodes[0].attrs));
  });
}
ir::Kernel lion_update_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(gradient_of(nodes), [&](auto grad) {
    return make<Lion<decltype(grad)>>(nodes, lion_rule(nodes[0].attrs));
  });
}
ir::Kernel ema_update_gpu(std::span<const NodeView> nodes) {
  return make<Ema>(nodes, static_cast<float>(1 - nodes[0].attrs.real("decay")));
}

ir::Kernel mask_gradient_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(nodes[0].in_type(0).dtype,
                           [&](auto grad) { return make<MaskGradient<decltype(grad)>>(nodes, 0); });
}
ir::Kernel apply_mask_gpu(std::span<const NodeView> nodes) { return make<ApplyMask>(nodes, 0); }
ir::Kernel prune_score_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(gradient_of(nodes),
                           [&](auto grad) { return make<PruneScore<decltype(grad)>>(nodes, 0); });
}

const GpuKernels kKernels = {{.op = "zero", .many = zero_gpu},
                             {.op = "accumulate", .many = accumulate_gpu},
                             {.op = "bf16_feedback", .many = bf16_feedback_gpu},
                             {.op = "fp8_feedback", .many = fp8_feedback_gpu},
                             {.op = "fp8_restore", .many = fp8_restore_gpu},
                             {.op = "sgd_update", .many = sgd_update_gpu},
                             {.op = "adamw_update", .many = adamw_update_gpu},
                             {.op = "lion_update", .many = lion_update_gpu},
                             {.op = "ema_update", .many = ema_update_gpu},
                             {.op = "mask_gradient", .many = mask_gradient_gpu},
                             {.op = "apply_mask", .many = apply_mask_gpu},
                             {.op = "prune_score", .many = prune_score_gpu}};

}  // namespace
}  // namespace hearth::ops
