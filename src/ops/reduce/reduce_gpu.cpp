#include <limits>
#include <numeric>
#include <vector>

#include "ops/many_tensors.h"
#include "ops/reduce/add_rows.h"
#include "ops/reduce/reduce.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Maximum number of partial sums of an array or a column. It is a constant, so that the order of additions
/// does not depend on the GPU.
constexpr int64_t kMaxParts = 64;
/// Minimum number of elements per partial sum of sum_all.
constexpr int64_t kPartElements = 4096;
/// Number of elements per partial sum of sum_squares.
constexpr int kSquaresRun = 16384;
/// Minimum number of rows per partial sum of sum_leading.
constexpr int64_t kPartRows = 16;

/// Computes parts[block], the block's partial sum of `in`.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) add_elements(const T* in, float* parts, int64_t count) {
  float sum = 0;
  for (int64_t i = first_element(); i < count; i += element_stride()) sum += rt::to_float(in[i]);
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}
/// Partial sums of an array, and the address for their total.
struct Parts {
  const float* parts;
  float* out;
};
/// Adds the partial sums of each array; one block per array.
__global__ void __launch_bounds__(kBlockThreads) add_parts(ManyTensors<Parts> all) {
  const BlockRun run = run_of_block(all);
  const Parts array = all.tensors[run.tensor];
  float sum = 0;
  for (int64_t i = threadIdx.x; i < run.end; i += kBlockThreads) sum += array.parts[i];
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) *array.out = sum;
}
/// Computes parts[block], the sum of squares of the block's range of elements of an array.
__global__ void __launch_bounds__(kBlockThreads) add_squares(ManyTensors<const float*> all, float* parts) {
  const BlockRun run = run_of_block(all);
  const float* in = all.tensors[run.tensor];
  float sum = 0;
  for (int64_t i = run.begin + threadIdx.x; i < run.end; i += kBlockThreads) sum += in[i] * in[i];
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

int64_t num_parts(int64_t count) { return std::clamp<int64_t>(ceil_div(count, kPartElements), 1, kMaxParts); }

template <typename T>
ir::Kernel make_sum(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements(), parts = num_parts(count);
  const auto run = [=](const KernelArgs& args) {
    auto* sums = reinterpret_cast<float*>(args.workspace);
    rt::launch(add_elements<T>, {parts, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0), sums,
               count);
    rt::launch(add_elements<float>, {1, kBlockThreads}, args.stream->handle(), sums,
               output_of<float>(args, 0), parts);
  };
  return {.run = run, .workspace_bytes = parts * int64_t{sizeof(float)}};
}

template <typename T>
ir::Kernel make_sum_leading(const NodeView& node) {
  const int64_t width = node.in_type(0).shape.back();
  const int64_t rows = node.in_type(0).shape.num_elements() / std::max<int64_t>(1, width);
  const int64_t parts = std::clamp<int64_t>(ceil_div(rows, kPartRows), 1, kMaxParts);
  const auto columns = static_cast<unsigned>(ceil_div(width, kBlockThreads));
  const auto run = [=](const KernelArgs& args) {
    auto* sums = reinterpret_cast<float*>(args.workspace);
    const rt::Dim3 threads{kBlockThreads, 1, 1};
    rt::launch(add_rows<T>, {rt::Dim3{columns, static_cast<unsigned>(parts), 1}, threads},
               args.stream->handle(), input_of<T>(args, 0), sums, rows, width);
    rt::launch(add_rows<float>, {rt::Dim3{columns, 1, 1}, threads}, args.stream->handle(), sums,
               output_of<float>(args, 0), parts, width);
  };
  return {.run = run, .workspace_bytes = parts * width * int64_t{sizeof(float)}};
}

ir::Kernel sum_all_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_sum<decltype(x)>(node); });
}

ir::Kernel sum_leading_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return make_sum_leading<decltype(x)>(node); });
}

ir::Kernel sum_squares_gpu(const NodeView& node) {
  std::vector<int64_t> counts, num_parts;
  for (const ir::Type& type : node.in) {
    counts.push_back(type.shape.num_elements());
    num_parts.push_back(num_runs(counts.back(), kSquaresRun));
  }
  std::vector<int64_t> first(num_parts.size());
  std::exclusive_scan(num_parts.begin(), num_parts.end(), first.begin(), int64_t{0});
  const int64_t workspace = std::reduce(num_parts.begin(), num_parts.end()) * int64_t{sizeof(float)};
  const auto run = [=, places = square_indices(node), count = num_squares(node)](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    args.stream->fill_zero(static_cast<std::byte*>(args.out[0]), count * int64_t{sizeof(float)});
    for_many_tensors<const float*>(
        counts, kSquaresRun, [&](size_t i) { return input_of<float>(args, i); },
        [&](const ManyTensors<const float*>& all) {
          rt::launch(add_squares, {all.num_blocks, kBlockThreads}, args.stream->handle(), all, parts);
          parts += all.num_blocks;
        });
    for_many_tensors<Parts>(
        num_parts, std::numeric_limits<int>::max(),
        [&](size_t i) {
          return Parts{reinterpret_cast<const float*>(args.workspace) + first[i],
                       output_of<float>(args, 0) + places[i]};
        },
        [&](const ManyTensors<Parts>& all) {
          rt::launch(add_parts, {all.num_blocks, kBlockThreads}, args.stream->handle(), all);
        });
  };
  return {.run = run, .workspace_bytes = workspace};
}

const GpuKernels kKernels = {{.op = "sum_all", .one = sum_all_gpu},
                             {.op = "sum_leading", .one = sum_leading_gpu},
                             {.op = "sum_squares", .one = sum_squares_gpu}};

}  // namespace
}  // namespace hearth::ops
