#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::exec {

/// Each queue runs in order, beside the others. The processor's program has the first and the last alone.
enum class Queue : uint8_t {
  compute,
  in,        ///< copies from host memory
  out,       ///< copies to host memory
  exchange,  ///< what the host does with other workers
};
inline constexpr size_t kNumQueues = 4;

/// Bytes that a step reads or writes, by addresses of any kind that tell memory apart.
struct Access {
  int64_t begin = 0;
  int64_t num_bytes = 0;
  bool writes = false;
};

struct QueuedStep {
  Queue queue = Queue::compute;
  std::vector<Access> accesses;
};

struct Waits {
  /// For each step, the earlier steps of other queues that it must wait for.
  std::vector<std::vector<size_t>> before;
  /// What Queue::compute must wait for after the last step, so that every step is done.
  std::vector<size_t> at_end;
};

/// The fewest waits under which two steps that touch the same bytes, one of them writing, run in the order
/// given. Nothing is asked that follows from other waits (vector clocks: Fidge 1988, Mattern 1989).
Waits find_waits(std::span<const QueuedStep> steps);

}  // namespace hearth::exec
