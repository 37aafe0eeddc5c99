#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::emu {

/// Logical time of the running thread: the checker uses it to decide which accesses are ordered by a barrier.
/// Maintained by the emulator.
struct LogicalTime {
  uint32_t kernel = 0;  ///< index of the kernel launch
  uint32_t block = 0;
  uint32_t thread = 0;
  uint32_t barriers = 0;    ///< number of barriers that the thread's block has passed
  uint32_t warp_syncs = 0;  ///< number of warp synchronizations that the thread's warp has passed
  bool in_kernel = false;
};
inline thread_local LogicalTime now;

/// Hooks of a race and initialization checker that sees every access of kernels (tests/race).
struct Checker {
  enum class State : uint8_t { nobodys, unset, set };

  /// Allocates memory that the checker tracks, aligned to 256 bytes; its initial state is `nobodys` (no
  /// variable is stored there).
  std::byte* (*reserve)(size_t num_bytes);
  void (*release)(std::byte* memory);
  /// Sets the state of the bytes.
  void (*mark)(const void* place, size_t num_bytes, State state);
};
/// The active checker; null if kernels are not checked. Set before the first GPU is opened.
extern const Checker* checker;

/// Ends the running grid with a Fault of that text, followed by the thread, block and launch.
[[noreturn]] void fail(const char* text);

/// Allocates device memory of exactly that size, aligned to 256 bytes, so that AddressSanitizer or the
/// checker detects accesses past its end.
std::byte* allocate(int64_t num_bytes);
void release(std::byte* memory);

}  // namespace hearth::emu
