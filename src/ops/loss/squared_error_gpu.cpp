#include <type_traits>

#include "ops/gpu_support.h"
#include "ops/loss/loss.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Maximum number of partial sums per sample, and minimum number of elements per partial sum.
constexpr int64_t kMaxParts = 64, kPartElements = 4096;

template <typename T, int n>
RT_DEVICE void for_errors(const T* prediction, const float* target, int64_t at, auto body) {
  const rt::Vec<T, n> got = rt::load<T, n>(prediction + at);
  const rt::Vec<float, n> wanted = rt::load<float, n>(target + at);
  RT_UNROLL
  for (int e = 0; e < n; ++e) body(e, rt::to_float(got.at[e]) - wanted.at[e]);
}

/// Computes parts [samples, gridDim.x], the partial sums of squared errors of each sample; blockIdx.y is the
/// sample.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_squares(const T* prediction, const float* target, float* parts, int64_t size) {
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * size;
  float sum = 0;
  for (int64_t i = first_element() * n; i < size; i += element_stride() * n)
    for_errors<T, n>(prediction, target, begin + i, [&](int, float error) { sum += error * error; });
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) parts[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}
/// Adds the partial sums of each sample and computes its loss; one thread per sample.
__global__ void __launch_bounds__(kBlockThreads)
    keep_losses(const float* parts, const float* weight, float* losses, int64_t samples, int num_parts,
                int64_t size) {
  const int64_t sample = first_element();
  if (sample >= samples) return;
  float sum = 0;
  for (int part = 0; part < num_parts; ++part) sum += parts[sample * num_parts + part];
  losses[sample] = weight[sample] * sum / static_cast<float>(size);
}

template <typename T>
struct GradArrays {
  const T* prediction;
  const float* target;
  const float* weight;
  const float* dlosses;
  T* dprediction;
};
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) spread(GradArrays<T> arrays, int64_t size, int64_t count) {
  for (int64_t i = first_element() * n; i < count; i += element_stride() * n) {
    const int64_t sample = i / size;
    const float factor = 2 * arrays.weight[sample] * arrays.dlosses[sample] / static_cast<float>(size);
    rt::Vec<T, n> result;
    for_errors<T, n>(arrays.prediction, arrays.target, i,
                     [&](int e, float error) { result.at[e] = rt::from_float<T>(factor * error); });
    rt::store(arrays.dprediction + i, result);
  }
}

template <typename T, int n>
ir::Kernel make(int64_t samples, int64_t size) {
  const int64_t num_parts = std::clamp<int64_t>(ceil_div(size, kPartElements), 1, kMaxParts);
  const rt::Shape blocks{rt::Dim3{static_cast<unsigned>(num_parts), static_cast<unsigned>(samples), 1},
                         rt::Dim3{kBlockThreads, 1, 1}};
  const auto run = [=](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    rt::launch(add_squares<T, n>, blocks, args.stream->handle(),
               input_of<T>(args, SquaredErrorIn::prediction), input_of<float>(args, SquaredErrorIn::target),
               parts, size);
    rt::launch(keep_losses, {ceil_div(samples, kBlockThreads), kBlockThreads}, args.stream->handle(), parts,
               input_of<float>(args, SquaredErrorIn::weight), output_of<float>(args, 0), samples,
               static_cast<int>(num_parts), size);
  };
  return {.run = run, .workspace_bytes = samples * num_parts * int64_t{sizeof(float)}};
}
template <typename T, int n>
ir::Kernel make_grad(int64_t samples, int64_t size) {
  const int64_t count = samples * size;
  const auto run = [=](const KernelArgs& args) {
    const GradArrays<T> arrays{.prediction = input_of<T>(args, SquaredErrorIn::prediction),
                               .target = input_of<float>(args, SquaredErrorIn::target),
                               .weight = input_of<float>(args, SquaredErrorIn::weight),
                               .dlosses = input_of<float>(args, SquaredErrorIn::dlosses),
                               .dprediction = output_of<T>(args, 0)};
    rt::launch(spread<T, n>, {num_stride_blocks(ceil_div(count, n)), kBlockThreads}, args.stream->handle(),
               arrays, size, count);
  };
  return {.run = run};
}

/// Returns body(T(), n, samples, elements per sample), where n is the number of elements per load.
template <typename Body>
ir::Kernel with_samples(const NodeView& node, Body body) {
  constexpr int64_t kMaxSamples = 65535;
  const int64_t samples = node.in_type(SquaredErrorIn::weight).shape[0];
  if (samples > kMaxSamples) refuse_on_gpu("the number of samples", kMaxSamples, samples);
  const ir::Type& prediction = node.in_type(SquaredErrorIn::prediction);
  const int64_t size = prediction.shape.num_elements() / samples;
  return with_storage_type(prediction.dtype, [&](auto element) {
    if (size % 4 == 0) return body(element, std::integral_constant<int, 4>(), samples, size);
    return body(element, std::integral_constant<int, 1>(), samples, size);
  });
}
ir::Kernel squared_error_gpu(const NodeView& node) {
  return with_samples(node, [](auto element, auto n, int64_t samples, int64_t size) {
    return make<decltype(element), n>(samples, size);
  });
}
ir::Kernel squared_error_grad_gpu(const NodeView& node) {
  return with_samples(node, [](auto element, auto n, int64_t samples, int64_t size) {
    return make_grad<decltype(element), n>(samples, size);
  });
}

const GpuKernels kKernels = {{.op = "squared_error", .one = squared_error_gpu},
                             {.op = "squared_error_grad", .one = squared_error_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
