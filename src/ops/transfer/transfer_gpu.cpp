#include "ops/gpu_support.h"
#include "ops/transfer/transfer.h"

namespace hearth::ops {
namespace {

/// Returns the kernel of fetch and load: copies host memory to the device, asynchronously to computation
/// because the host memory is page-locked.
ir::Kernel fetch_gpu(const ir::NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  const auto run = [=](const ir::KernelArgs& args) {
    args.stream->copy_in(output_of<std::byte>(args, 0), args.in.back(), num_bytes);
  };
  return {.run = run};
}

ir::Kernel to_host_gpu(const ir::NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  const auto run = [=](const ir::KernelArgs& args) {
    args.stream->copy_out(args.out[0], input_of<std::byte>(args, 0), num_bytes);
  };
  return {.run = run};
}

const GpuKernels kKernels = {{.op = "fetch", .one = fetch_gpu},
                             {.op = "load", .one = fetch_gpu},
                             {.op = "store", .one = to_host_gpu},
                             {.op = "stash", .one = to_host_gpu}};

}  // namespace
}  // namespace hearth::ops
