#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "base/function_ref.h"

/// Runs grids of GPU threads on the CPU. Every thread of a block is a fiber, and barriers and warp operations
/// really wait, so that undefined behavior, which a GPU may not show, is detected as a Fault. Kernels use
/// this interface only through backend/gpu/rt.h.
namespace hearth::emu {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMaxThreads = 1024;

/// Dimensions or index of a grid or block, as dim3 of HIP and CUDA.
struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

/// A location in a source file.
struct Site {
  const char* file = "";
  int line = 0;
  bool operator==(const Site&) const = default;
};

/// Order in which runnable threads and blocks are scheduled.
enum class Order : uint8_t { forward, reverse, random };

/// Settings of the scheduler and limits of a block.
struct Settings {
  Order order = Order::forward;
  uint64_t seed = 1;                 ///< seed of the random order
  int64_t shared_bytes = 64 * 1024;  ///< shared memory per block, static and dynamic
  /// Max CPU time of a thread between two synchronizations, in seconds. Exceeding it is a Fault.
  double deadline_seconds = 10;
};
/// Settings of every grid of this process; change them between grids only.
Settings& settings();

/// A kernel error: a barrier that some threads never reach, lanes missing from a warp operation, too much
/// shared memory, an endless loop. The message names the error, source line, block and thread.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Dimensions of a launch and its source location.
struct Grid {
  Dim3 blocks;
  Dim3 threads;  ///< number of threads per block
  int64_t dynamic_shared_bytes = 0;
  Site launched;
};

/// Calls `kernel` once per thread of the grid. Throws Fault; memory that the kernel wrote to then has
/// unspecified contents.
void run(const Grid& grid, FunctionRef<void()> kernel);

// Called by the threads of a kernel.

/// Indices and dimensions of the running thread.
struct Running {
  Dim3 thread, block, threads, blocks;
};
inline thread_local Running running;

/// Returns the running thread's index in its warp.
int lane();
/// Waits until every thread of the block has reached this barrier. A Fault if a thread ends or waits
/// elsewhere.
void barrier(Site site);
/// Max number of bytes that a lane can pass to post().
inline constexpr size_t kSlotBytes = 128;
/// Writes the lane's value and waits until every lane of the warp has called this at the same site. Returns a
/// table with lane i's value at i * kSlotBytes, which is valid until the second warp operation after this
/// one.
const std::byte* post(const void* value, size_t bytes, Site site);
/// Returns the block's variable of that key, aligned to 16 bytes. All of its bytes are 0xFF until they are
/// written.
void* shared(const void* key, size_t bytes);
/// Returns the dynamic shared memory that the launch requested by Grid::dynamic_shared_bytes.
void* dynamic_shared();

}  // namespace hearth::emu
