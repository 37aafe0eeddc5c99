// Finds two threads that touch the same byte, one of them writing, with nothing that orders them; bytes that
// are nobody's; and variables of a block that are read before they are written. It sees what is compiled with
// -fsanitize=thread, whose callbacks it has in place of that sanitizer's library.
//
// Two accesses of a kernel are ordered when one thread makes both, when a barrier of their block lies between
// them or, within a warp, rt::sync_warp(). Blocks of a kernel are never ordered; atomics are not looked at.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "backend/gpu/emu/checker.h"

namespace hearth::emu {
namespace {

constexpr size_t kArenaBytes = size_t{1} << 30;
constexpr size_t kAlignment = 256;

/// Who touched a byte, and when; kernel 0: nobody.
struct Stamp {
  uint32_t kernel : 24;
  uint32_t lanes : 1;   ///< of reads: several lanes of that warp, between the same barriers
  uint32_t warps : 1;   ///< of reads: several warps of that block
  uint32_t blocks : 1;  ///< of reads: several blocks
  uint32_t : 5;
  uint32_t block;
  uint16_t thread;
  uint16_t barriers;
  uint32_t warp_syncs;
};
struct Shadow {
  Stamp write;
  Stamp read;
  Checker::State state;
};

Stamp stamp_now() {
  return {.kernel = now.kernel & 0xffffffU,
          .lanes = 0,
          .warps = 0,
          .blocks = 0,
          .block = now.block,
          .thread = static_cast<uint16_t>(now.thread),
          .barriers = static_cast<uint16_t>(now.barriers),
          .warp_syncs = now.warp_syncs};
}

template <typename T>
T* reserve_pages(size_t count) {
  void* pages = mmap(nullptr, count * sizeof(T), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(pages);
}

/// Memory and what is known of each of its bytes.
class Arena {
 public:
  static Arena& get() {
    static Arena one;
    return one;
  }
  std::byte* reserve(size_t num_bytes) {
    for (auto& [size, places] : free_) {
      if (size != num_bytes || places.empty()) continue;
      std::byte* place = places.back();
      places.pop_back();
      return taken(place, num_bytes);
    }
    std::byte* place = bytes_ + used_;
    used_ += (num_bytes / kAlignment + 2) * kAlignment;
    if (used_ > kArenaBytes) throw std::bad_alloc();
    return taken(place, num_bytes);
  }
  void release(std::byte* place) {
    const size_t size = size_of_.at(place);
    mark(place, size, Checker::State::nobodys);
    free_[size].push_back(place);
  }
  void mark(const void* place, size_t num_bytes, Checker::State state) {
    Shadow* shadow = shadow_of(place);
    for (size_t i = 0; i < num_bytes; ++i) shadow[i] = {.write = {}, .read = {}, .state = state};
  }
  bool holds(const void* place) const {
    return place >= bytes_ && place < static_cast<const void*>(bytes_ + kArenaBytes);
  }
  Shadow* shadow_of(const void* place) { return shadow_ + (static_cast<const std::byte*>(place) - bytes_); }

 private:
  std::byte* taken(std::byte* place, size_t num_bytes) {
    size_of_[place] = num_bytes;
    return place;
  }

  std::byte* bytes_ = reserve_pages<std::byte>(kArenaBytes);
  Shadow* shadow_ = reserve_pages<Shadow>(kArenaBytes);
  size_t used_ = kAlignment;
  std::map<std::byte*, size_t> size_of_;
  std::map<size_t, std::vector<std::byte*>> free_;
};

bool same_warp(const Stamp& a, const Stamp& b) { return a.thread / 32 == b.thread / 32; }

/// Whether something orders the access of `then` before the running one.
bool ordered(const Stamp& then, const Stamp& here) {
  if (then.kernel != here.kernel) return true;
  if (then.block != here.block || then.blocks != 0) return false;
  if (then.barriers != here.barriers) return true;
  if (then.warps != 0) return false;
  if (same_warp(then, here)) {
    if (then.warp_syncs != here.warp_syncs) return true;
    return then.lanes == 0 && then.thread == here.thread;
  }
  return false;
}

/// Adds the running read to what is known of earlier ones.
void add_read(Stamp& read, Stamp here) {
  if (read.kernel == here.kernel) {
    if (read.blocks != 0 || read.block != here.block) {
      here.blocks = 1;
    } else if (read.barriers == here.barriers) {
      here.warps = read.warps != 0 || !same_warp(read, here) ? 1 : 0;
      const bool same_sync = read.warp_syncs == here.warp_syncs;
      here.lanes = same_sync && (read.lanes != 0 || read.thread != here.thread) ? 1 : 0;
    }
  }
  read = here;
}

void look(const void* place, size_t num_bytes, bool writes) {
  Arena& arena = Arena::get();
  if (!now.in_kernel || !arena.holds(place)) return;
  const Stamp here = stamp_now();
  Shadow* shadow = arena.shadow_of(place);
  for (size_t i = 0; i < num_bytes; ++i) {
    Shadow& byte = shadow[i];
    if (byte.state == Checker::State::nobodys)
      fail(writes ? "a write out of bounds" : "a read out of bounds");
    if (!writes && byte.state == Checker::State::unset)
      fail("a read of shared memory that nobody has written");
    if (!ordered(byte.write, here))
      fail(writes ? "a race of two writes" : "a race: a read of what another thread writes");
    if (writes && !ordered(byte.read, here)) fail("a race: a write of what another thread reads");
    if (writes) {
      byte.write = here;
      byte.state = Checker::State::set;
    } else {
      add_read(byte.read, here);
    }
  }
}

std::byte* reserve(size_t num_bytes) { return Arena::get().reserve(num_bytes); }
void release_bytes(std::byte* place) { Arena::get().release(place); }
void mark(const void* place, size_t num_bytes, Checker::State state) {
  Arena::get().mark(place, num_bytes, state);
}

constexpr Checker kRaceChecker{.reserve = reserve, .release = release_bytes, .mark = mark};
const bool kSet = [] {
  checker = &kRaceChecker;
  return true;
}();

}  // namespace
}  // namespace hearth::emu

// NOLINTBEGIN(bugprone-reserved-identifier): the names are the compilers'.
#define HEARTH_ACCESS(size)                                                                      \
  void __tsan_read##size(const void* place) { hearth::emu::look(place, size, false); }           \
  void __tsan_write##size(const void* place) { hearth::emu::look(place, size, true); }           \
  void __tsan_unaligned_read##size(const void* place) { hearth::emu::look(place, size, false); } \
  void __tsan_unaligned_write##size(const void* place) { hearth::emu::look(place, size, true); } \
  void __tsan_volatile_read##size(const void* place) { hearth::emu::look(place, size, false); }  \
  void __tsan_volatile_write##size(const void* place) { hearth::emu::look(place, size, true); }

extern "C" {
HEARTH_ACCESS(1)
HEARTH_ACCESS(2)
HEARTH_ACCESS(4)
HEARTH_ACCESS(8)
HEARTH_ACCESS(16)
void __tsan_read_range(const void* place, size_t size) { hearth::emu::look(place, size, false); }
void __tsan_write_range(const void* place, size_t size) { hearth::emu::look(place, size, true); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// clang leaves copies of 16 bytes as calls; the linker's --wrap brings them here.
void* __real_memcpy(void*, const void*, size_t);
void* __real_memmove(void*, const void*, size_t);
void* __real_memset(void*, int, size_t);
void* __wrap_memcpy(void* to, const void* from, size_t size) {
  hearth::emu::look(from, size, false);
  hearth::emu::look(to, size, true);
  return __real_memcpy(to, from, size);
}
void* __wrap_memmove(void* to, const void* from, size_t size) {
  hearth::emu::look(from, size, false);
  hearth::emu::look(to, size, true);
  return __real_memmove(to, from, size);
}
void* __wrap_memset(void* to, int value, size_t size) {
  hearth::emu::look(to, size, true);
  return __real_memset(to, value, size);
}
}
// NOLINTEND(bugprone-reserved-identifier)
