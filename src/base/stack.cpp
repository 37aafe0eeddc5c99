#include "base/stack.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include <cstddef>
#include <exception>
#include <new>

#include "base/threads.h"

namespace hearth {
namespace {

/// Stack limits (ulimit -s) below this number of bytes are too small for touch_stack_pages().
constexpr size_t kMinLimit = size_t{2} << 20;
/// Size in bytes of the mapped stack, equal to the default stack limit of Linux.
constexpr size_t kMappedStackBytes = size_t{8} << 20;

/// The work that runs on a mapped stack, the contexts to switch between, and the result.
struct StackSwitch {
  FunctionRef<int()> work;
  ucontext_t before = {}, inside = {};
  int result = 0;
  std::exception_ptr error;
};
StackSwitch* present_switch = nullptr;

void work_inside() {
  try {
    present_switch->result = present_switch->work();
  } catch (...) {
    present_switch->error = std::current_exception();
  }
}

/// Sets the default stack size of new threads to kMappedStackBytes. Without this they would inherit the low
/// stack limit of the process.
void raise_stack_of_threads() {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return;
  if (pthread_attr_setstacksize(&attributes, kMappedStackBytes) == 0) pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
}

int on_mapped_stack(FunctionRef<int()> work) {
  constexpr size_t kGuardBytes = size_t{64} << 10;
  void* const stack = mmap(nullptr, kMappedStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
  StackSwitch all{.work = work};
  present_switch = &all;
  getcontext(&all.inside);
  all.inside.uc_stack = {.ss_sp = stack, .ss_flags = 0, .ss_size = kMappedStackBytes};
  all.inside.uc_link = &all.before;
  makecontext(&all.inside, work_inside, 0);
  swapcontext(&all.before, &all.inside);
  present_switch = nullptr;
  munmap(stack, kMappedStackBytes);
  if (all.error) std::rethrow_exception(all.error);
  return all.result;
}

}  // namespace

int with_stack(FunctionRef<int()> work) {
  rlimit limit{};
  const bool is_low = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kMinLimit;
  if (is_low) {
    raise_stack_of_threads();
    return on_mapped_stack(work);
  }
  touch_stack_pages();
  return work();
}

}  // namespace hearth
