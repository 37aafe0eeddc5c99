#include "malloc_count.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>

// NOLINTBEGIN: these names and types are the C library's.
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
}
// NOLINTEND

namespace hearth {
namespace {

constexpr int kFrames = 24;
constexpr int kKept = 8;

std::atomic<bool> counting{false};
std::atomic<int64_t> num_own{0};
std::atomic<int64_t> num_of_libraries{0};
thread_local int64_t num_of_thread = 0;
thread_local bool inside = false;

struct Trace {
  std::array<void*, kFrames> frames;
  int num_frames = 0;
};
std::array<Trace, kKept> traces;

/// The file that holds the code at `address`.
const char* file_of(void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

/// Whether the first frame after the C and C++ libraries, from the caller of the hook on, is this program's.
bool is_own(const Trace& trace, void* caller) {
  const char* own_file = file_of(reinterpret_cast<void*>(&count_allocations));
  bool behind_hook = false;
  for (int i = 0; i < trace.num_frames; ++i) {
    void* frame = trace.frames[static_cast<size_t>(i)];
    behind_hook = behind_hook || frame == caller;
    const char* file = file_of(frame);
    if (!behind_hook || std::strstr(file, "libstdc++") != nullptr || std::strstr(file, "/libc.so") != nullptr)
      continue;
    return std::strcmp(file, own_file) == 0;
  }
  return true;
}

void note(void* caller) {
  if (!counting.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  ++num_of_thread;
  Trace trace;
  trace.num_frames = backtrace(trace.frames.data(), kFrames);
  if (is_own(trace, caller)) {
    const int64_t index = num_own.fetch_add(1);
    if (index < kKept) traces[static_cast<size_t>(index)] = trace;
  } else {
    ++num_of_libraries;
  }
  inside = false;
}

}  // namespace

void count_allocations(bool on) {
  // The first backtrace loads a library.
  std::array<void*, 2> frames;
  backtrace(frames.data(), 2);
  if (on) {
    num_own = 0;
    num_of_libraries = 0;
    num_of_thread = 0;
  }
  counting = on;
}

AllocationCount allocations() { return {num_own, num_of_libraries, num_of_thread}; }

void print_allocations() {
  for (size_t i = 0; i < kKept && static_cast<int64_t>(i) < num_own; ++i) {
    backtrace_symbols_fd(traces[i].frames.data(), traces[i].num_frames, STDOUT_FILENO);
    if (write(STDOUT_FILENO, "\n", 1) != 1) return;
  }
}

}  // namespace hearth

// NOLINTBEGIN: these names and types are the C library's.
extern "C" {
void* malloc(size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  hearth::note(__builtin_return_address(0));
  void* memory = __libc_memalign(alignment, size);
  if (memory == nullptr) return ENOMEM;
  *out = memory;
  return 0;
}
}
// NOLINTEND
