#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::exec {

/// Queues of a program. Each queue runs its steps in order, concurrently with the other queues. CPU programs
/// use only compute and exchange.
enum class Queue : uint8_t {
  compute,
  in,        ///< copies from host memory
  out,       ///< copies to host memory
  exchange,  ///< collectives and other communication between workers
};
inline constexpr size_t kNumQueues = 4;

/// A range of bytes that a step reads or writes, in an address space in which different memory has different
/// addresses.
struct Access {
  int64_t begin = 0;
  int64_t num_bytes = 0;
  bool writes = false;
};

/// A step, as find_waits() sees it: its queue and the memory that it accesses.
struct QueuedStep {
  Queue queue = Queue::compute;
  std::vector<Access> accesses;
};

/// The waits that order the steps of different queues of a program.
struct Waits {
  /// For each step, the indices of the earlier steps in other queues for which it must wait.
  std::vector<std::vector<size_t>> before;
  /// Indices of the steps that the compute queue must wait for at the end of a run. After that, all steps are
  /// done.
  std::vector<size_t> at_end;
};

/// Returns a minimal set of waits under which steps that access the same bytes, at least one of them writing,
/// run in the given order. Waits that follow from others are omitted (vector clocks: Fidge 1988, Mattern
/// 1989).
Waits find_waits(std::span<const QueuedStep> steps);

}  // namespace hearth::exec
