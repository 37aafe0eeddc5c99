#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "base/function_ref.h"

/// Grids of GPU threads on the CPU: every thread of a block is a fiber, barriers and warp operations are
/// real, and what a GPU would let pass by luck is a Fault. Kernels see this through backend/gpu/rt.h alone.
namespace hearth::emu {

inline constexpr int kWarpThreads = 32;
inline constexpr int kMostThreads = 1024;

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  bool operator==(const Dim3&) const = default;
};

/// A place in a source file.
struct Site {
  const char* file = "";
  int line = 0;
  bool operator==(const Site&) const = default;
};

/// Which of the threads that can continue does, and which block is next.
enum class Order : uint8_t { forward, reverse, random };

struct Settings {
  Order order = Order::forward;
  uint64_t seed = 1;                 ///< of the random order
  int64_t shared_bytes = 64 * 1024;  ///< of a block, static and dynamic
  double deadline_seconds = 10;      ///< of processor time: a thread that neither waits nor ends is a Fault
};
/// Of every grid of this process; changed between grids only.
Settings& settings();

/// A kernel did what it must not: a barrier that some threads never reach, lanes missing from a warp
/// operation, too much shared memory, a loop without end. Says what, where, and in which block and thread.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Grid {
  Dim3 blocks;
  Dim3 threads;  ///< of a block
  int64_t dynamic_shared_bytes = 0;
  Site launched;
};

/// Calls `kernel` once as every thread of the grid. Throws Fault; the memory that the kernel wrote to is then
/// as it left it.
void run(const Grid& grid, FunctionRef<void()> kernel);

// What follows is called by a kernel's thread.

/// Where the running thread stands.
struct Running {
  Dim3 thread, block, threads, blocks;
};
inline thread_local Running running;

int lane();
void barrier(Site site);
/// What one lane may hand to the others.
inline constexpr size_t kSlotBytes = 128;
/// Waits until every lane of the warp has posted at this site; lane i's value lies at i * kSlotBytes of the
/// result until the next but one operation of the warp.
const std::byte* post(const void* value, size_t bytes, Site site);
/// The block's variable of that key, aligned to 16 bytes; every byte is 0xFF before the first write.
void* shared(const void* key, size_t bytes);
void* dynamic_shared();

}  // namespace hearth::emu
