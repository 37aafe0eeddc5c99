#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define HEARTH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HEARTH_ASAN 1
#endif
#endif
#ifdef HEARTH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/// Hooks for AddressSanitizer; empty functions in builds without the sanitizer.
namespace hearth {

/// Marks memory as unreadable, or as readable again: any access to poisoned memory is reported as an error.
inline void poison([[maybe_unused]] const void* place, [[maybe_unused]] size_t bytes) {
#ifdef HEARTH_ASAN
  __asan_poison_memory_region(place, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* place, [[maybe_unused]] size_t bytes) {
#ifdef HEARTH_ASAN
  __asan_unpoison_memory_region(place, bytes);
#endif
}

/// Announces a switch to another stack, before and after the switch. A null `fake_stack` means that the code
/// never returns to the old stack.
inline void before_stack_switch([[maybe_unused]] void** fake_stack, [[maybe_unused]] const void* stack,
                                [[maybe_unused]] size_t bytes) {
#ifdef HEARTH_ASAN
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#endif
}
inline void after_stack_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** stack,
                               [[maybe_unused]] size_t* bytes) {
#ifdef HEARTH_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, stack, bytes);
#endif
}

}  // namespace hearth
