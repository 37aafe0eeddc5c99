#include "ops/many_tensors.h"
#include "ops/shape/shape.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Elements that each block converts.
constexpr int kRun = 2048;

template <typename From, typename To>
struct Arrays {
  const From* in;
  To* out;
};
template <typename From, typename To>
__global__ void __launch_bounds__(kBlockThreads) convert_all(ManyTensors<Arrays<From, To>> all) {
  const BlockRun run = run_of_block(all);
  const Arrays<From, To> arrays = all.tensors[run.tensor];
  for (int64_t i = run.begin + threadIdx.x; i < run.end; i += kBlockThreads)
    arrays.out[i] = rt::from_float<To>(rt::to_float(arrays.in[i]));
}

/// Stacked matrix: an input of a stack_rows node or an output of an unstack_rows node.
struct Matrix {
  size_t node, index;
  int64_t begin;  ///< of its elements in the stacked rows
};

template <typename From, typename To>
ir::Kernel make(std::span<const NodeView> nodes, bool stacks) {
  std::vector<Matrix> matrices;
  std::vector<int64_t> counts;
  for (size_t n = 0; n < nodes.size(); ++n) {
    int64_t begin = 0;
    const std::span<const ir::Type> types = stacks ? nodes[n].in : nodes[n].out;
    for (size_t i = 0; i < types.size(); begin += counts.back(), ++i) {
      matrices.push_back({n, i, begin});
      counts.push_back(types[i].shape.num_elements());
    }
  }
  const auto run = [=, num_nodes = nodes.size()](const KernelArgs& all) {
    const auto arrays_of = [&](size_t i) -> Arrays<From, To> {
      const Matrix& matrix = matrices[i];
      const KernelArgs args = args_of(all, num_nodes, matrix.node);
      if (stacks) return {input_of<From>(args, matrix.index), output_of<To>(args, 0) + matrix.begin};
      return {input_of<From>(args, 0) + matrix.begin, output_of<To>(args, matrix.index)};
    };
    for_many_tensors<Arrays<From, To>>(
        counts, kRun, arrays_of, [&](const ManyTensors<Arrays<From, To>>& table) {
          rt::launch(convert_all<From, To>, {table.num_blocks, kBlockThreads}, all.stream->handle(), table);
        });
  };
  return {.run = run};
}

template <bool stacks>
ir::Kernel stack_gpu(std::span<const NodeView> nodes) {
  return with_storage_type(nodes[0].in_type(0).dtype, [&](auto from) {
    return with_storage_type(nodes[0].out_type(0).dtype,
                             [&](auto to) { return make<decltype(from), decltype(to)>(nodes, stacks); });
  });
}

const GpuKernels kKernels = {{.op = "stack_rows", .many = stack_gpu<true>},
                             {.op = "unstack_rows", .many = stack_gpu<false>}};

}  // namespace
}  // namespace hearth::ops
