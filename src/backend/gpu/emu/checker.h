#pragma once

#include <cstddef>
#include <cstdint>

namespace hearth::emu {

/// The running thread's place in time, by which accesses are ordered. Kept by the emulator.
struct Moment {
  uint32_t kernel = 0;  ///< number of the launch
  uint32_t block = 0;
  uint32_t thread = 0;
  uint32_t barriers = 0;    ///< that its block has passed
  uint32_t warp_syncs = 0;  ///< that its warp has passed
  bool in_kernel = false;
};
inline thread_local Moment now;

/// What looks at every access of kernels, where a program has such a thing (tests/race).
struct Checker {
  enum class State : uint8_t { nobodys, unset, set };

  /// Memory that it can look at, aligned to 256 bytes; nobody's at first.
  std::byte* (*reserve)(size_t num_bytes);
  void (*release)(std::byte* memory);
  /// Says what the bytes are from now on.
  void (*mark)(const void* place, size_t num_bytes, State state);
};
/// Null: none. Set before the first GPU is opened.
extern const Checker* checker;

/// Ends the running grid with a Fault of that text, after which the place is named.
[[noreturn]] void fail(const char* text);

/// Device memory of exactly that size, so that AddressSanitizer or the checker sees what lies after it;
/// aligned to 256 bytes.
std::byte* allocate(int64_t num_bytes);
void release(std::byte* memory);

}  // namespace hearth::emu
