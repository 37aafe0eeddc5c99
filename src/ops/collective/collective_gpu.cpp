#include "ops/collective/each_output.h"
#include "ops/gpu_support.h"

namespace hearth::ops {
namespace {

using distributed::ProcessGroup;

/// Returns a kernel for inputs in GPU memory: enqueues collective(group, array, stream) for each array.
template <typename Collective>
ir::Kernel each_piece(const ir::NodeView& node, Collective collective) {
  return each_output(node,
                     [collective](const ir::KernelArgs& args, std::span<const std::span<float>> pieces) {
                       args.group->in_step([&] {
                         for (const std::span<float> piece : pieces)
                           collective(*args.group, piece, *args.stream);
                       });
                     });
}

ir::Kernel all_reduce_gpu(const ir::NodeView& node) {
  return each_piece(node, [](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
    group.all_reduce(piece.data(), std::ssize(piece), DType::f32, stream);
  });
}

ir::Kernel reduce_gpu(const ir::NodeView& node) {
  return each_piece(node,
                    [root = root_of(node)](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
                      group.reduce(piece.data(), std::ssize(piece), DType::f32, root, stream);
                    });
}

ir::Kernel broadcast_gpu(const ir::NodeView& node) {
  return each_piece(node,
                    [root = root_of(node)](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
                      group.broadcast(piece.data(), static_cast<int64_t>(piece.size_bytes()), root, stream);
                    });
}

const GpuKernels kKernels = {{.op = "all_reduce", .one = all_reduce_gpu},
                             {.op = "reduce", .one = reduce_gpu},
                             {.op = "broadcast", .one = broadcast_gpu}};

}  // namespace
}  // namespace hearth::ops
