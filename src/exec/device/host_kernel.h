#pragma once

#include <memory>
#include <vector>

#include "ir/op_def.h"

namespace hearth::exec {

/// Host memory that such kernels of a program take turns with.
class HostScratch {
 public:
  /// Makes room; the address may change until the last call.
  void reserve(size_t num_bytes) {
    if (lines_.size() * sizeof(Line) < num_bytes) lines_.resize(num_bytes / sizeof(Line) + 1);
  }
  std::byte* data() { return lines_.front().bytes; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_ = std::vector<Line>(1);
};

/// The op's CPU kernel as a kernel for a GPU: copies what it reads from the GPU, computes on the host, and
/// copies back what it made, waiting for the GPU each time. Correct, and slow.
ir::Kernel host_kernel(const ir::OpDef& op, const ir::NodeView& view, std::shared_ptr<HostScratch> scratch);

}  // namespace hearth::exec
