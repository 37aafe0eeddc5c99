#pragma once

#include <memory>
#include <vector>

#include "ir/op_def.h"

namespace hearth::exec {

/// Host scratch memory shared by a program's host kernels, which run one at a time.
class HostScratch {
 public:
  /// Enlarges the memory to at least `num_bytes`. Each call may change the address.
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

/// Wraps the op's CPU kernel as a kernel of a GPU program: copies the inputs to the host, computes there, and
/// copies the outputs back. Slow, because it waits for the stream before and after computing.
ir::Kernel host_kernel(const ir::OpDef& op, const ir::NodeView& view, std::shared_ptr<HostScratch> scratch);

}  // namespace hearth::exec
