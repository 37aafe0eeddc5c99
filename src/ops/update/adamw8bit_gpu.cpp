#include "ops/many_tensors.h"
#include "ops/update/dynamic_map.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// A thread for each of the elements that share a scale, and several times so many for a block, which makes
/// its tables once.
static_assert(kBlock8Bit == kBlockThreads);
constexpr int kRun = 16 * kBlock8Bit;

template <typename T>
struct Tensor {
  float* param;
  const T* grad;
  uint8_t* m;
  float* m_scale;
  uint8_t* v;
  float* v_scale;
};

/// The code whose value is nearest to x: how many middles between neighbors lie below it.
RT_DEVICE int nearest(const float* map, float x) {
  int at = 0;
  for (int step = 128; step > 0; step /= 2) at += x > 0.5F * (map[at + step - 1] + map[at + step]) ? step : 0;
  return at;
}
/// The neighbor of a code that has lost the sign of `value`.
RT_DEVICE int with_sign_of(float value, int code, const float* map) {
  if (value < 0 && map[code] >= 0) return code - 1;
  if (value > 0 && map[code] < 0) return code + 1;
  return code;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    update(ManyTensors<Tensor<T>> all, AdamOptions options, const float* lr, const float* factor,
           const float* step_count) {
  if (*factor < 0) return;
  RT_SHARED(of_block, Adam8Step);
  RT_SHARED(with_sign, float[256]);
  RT_SHARED(without_sign, float[256]);
  const int thread = static_cast<int>(threadIdx.x);
  with_sign[thread] = dynamic_value(true, static_cast<uint8_t>(thread));
  without_sign[thread] = dynamic_value(false, static_cast<uint8_t>(thread));
  if (thread == 0) of_block = adam8_step(options, *lr, *factor, *step_count);
  rt::sync_block();
  const Adam8Step step = of_block;
  const BlockRun run = run_of_block(all);
  const Tensor<T> tensor = all.tensors[run.tensor];
  for (int64_t begin = run.begin; begin < run.end; begin += kBlock8Bit) {
    const int64_t block = begin / kBlock8Bit, i = begin + thread;
    const bool inside = i < run.end;
    float m = 0, v = 0;
    if (inside) {
      m = tensor.m_scale[block] * with_sign[tensor.m[i]];
      v = tensor.v_scale[block] * without_sign[tensor.v[i]];
      step.move_moments(rt::to_float(tensor.grad[i]), m, v);
      step.move(m, v, tensor.param[i]);
    }
    // The reductions' barriers lie between every thread's reading of the scales and their writing.
    const float most_m = rt::reduce_block(fabsf(m), rt::Max(), 0.0F);
    const float most_v = rt::reduce_block(fabsf(v), rt::Max(), 0.0F);
    if (inside) {
      const float per_m = most_m > 0 ? 1 / most_m : 0.0F, per_v = most_v > 0 ? 1 / most_v : 0.0F;
      tensor.m[i] = static_cast<uint8_t>(with_sign_of(m, nearest(with_sign, per_m * m), with_sign));
      tensor.v[i] = static_cast<uint8_t>(nearest(without_sign, per_v * v));
    }
    if (thread == 0) {
      tensor.m_scale[block] = most_m;
      tensor.v_scale[block] = most_v;
    }
  }
}

template <typename T>
Tensor<T> tensor_of(const KernelArgs& args) {
  return {output_of<float>(args, 0), input_of<T>(args, 1),        output_of<uint8_t>(args, 1),
          output_of<float>(args, 2), output_of<uint8_t>(args, 3), output_of<float>(args, 4)};
}

template <typename T>
ir::Kernel make(std::span<const NodeView> nodes) {
  const auto run = [options = adam_options(nodes[0].attrs),
                    counts = counts_of(nodes)](const KernelArgs& args) {
    const size_t num_nodes = counts.size();
    for_many_tensors<Tensor<T>>(
        counts, kRun, [&](size_t i) { return tensor_of<T>(args_of(args, num_nodes, i)); },
        [&](const ManyTensors<Tensor<T>>& all) {
          rt::launch(update<T>, {all.num_blocks, kBlockThreads}, args.stream->handle(), all, options,
                     input_of<float>(args, 2), input_of<float>(args, 3), input_of<float>(args, 8));
        });
  };
  return {.run = run};
}

ir::Kernel adamw8bit_update_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(nodes[0].in_type(1).dtype, [&](auto grad) { return make<decltype(grad)>(nodes); });
}

const GpuKernels kKernels = {{.op = "adamw8bit_update", .many = adamw8bit_update_gpu}};

}  // namespace
}  // namespace hearth::ops
