#include "ops/elementwise/cast_gpu.h"
#include "ops/shape/shape.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

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
    const auto arrays_of = [&](size_t i) -> CastArrays<From, To> {
      const Matrix& matrix = matrices[i];
      const KernelArgs args = args_of(all, num_nodes, matrix.node);
      if (stacks) return {input_of<From>(args, matrix.index), output_of<To>(args, 0) + matrix.begin};
      return {input_of<From>(args, 0) + matrix.begin, output_of<To>(args, matrix.index)};
    };
    launch_casts<From, To>(counts, arrays_of, all.stream->handle());
  };
  return {.run = run};
}

template <bool stacks>
ir::Kernel stack_gpu(std::span<const NodeView> nodes) {
  return with_cast_types(
      nodes[0], [&](auto from, auto to) { return make<decltype(from), decltype(to)>(nodes, stacks); });
}

const GpuKernels kKernels = {{.op = "stack_rows", .many = stack_gpu<true>},
                             {.op = "unstack_rows", .many = stack_gpu<false>}};

}  // namespace
}  // namespace hearth::ops
