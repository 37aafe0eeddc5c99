#include "backend/gpu/emu/fiber.h"

#include <sys/mman.h>

#include <boost/context/detail/fcontext.hpp>
#include <new>

#include "base/asan.h"

namespace hearth::emu {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::jump_fcontext;
using boost::context::detail::make_fcontext;
using boost::context::detail::transfer_t;

constexpr size_t kGuardBytes = 4096;

}  // namespace

/// The fibers that a jump leaves and enters; passed as the jump's argument.
struct Fiber::Start {
  Fiber* from;
  Fiber* to;

  /// Stores the context of the fiber that was left. Every fiber calls this first after a jump to it.
  static void arrive(transfer_t transfer, void* fake_stack) {
    Fiber& from = *static_cast<Start*>(transfer.data)->from;
    from.context_ = transfer.fctx;
    const void* stack = nullptr;
    size_t bytes = 0;
    after_stack_switch(fake_stack, &stack, &bytes);
    if (from.owns_stack_) return;
    from.stack_ = const_cast<void*>(stack);
    from.stack_bytes_ = bytes;
  }
  static void enter(transfer_t transfer) {
    Fiber& self = *static_cast<Start*>(transfer.data)->to;
    arrive(transfer, nullptr);
    self.entry_(self.argument_);
  }
};

Fiber::~Fiber() {
  if (owns_stack_) munmap(static_cast<std::byte*>(stack_) - kGuardBytes, stack_bytes_ + kGuardBytes);
}

void Fiber::restart() {
  if (!owns_stack_) {
    void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuardBytes, PROT_NONE);
    stack_ = static_cast<std::byte*>(memory) + kGuardBytes;
    stack_bytes_ = kStackBytes;
    owns_stack_ = true;
  }
  fake_stack_ = nullptr;
  context_ = make_fcontext(static_cast<std::byte*>(stack_) + stack_bytes_, stack_bytes_, Start::enter);
}

void Fiber::jump(Fiber& to, bool for_good) {
  Start start{.from = this, .to = &to};
  before_stack_switch(for_good ? nullptr : &fake_stack_, to.stack_, to.stack_bytes_);
  const transfer_t back = jump_fcontext(static_cast<fcontext_t>(to.context_), &start);
  Start::arrive(back, fake_stack_);
}

}  // namespace hearth::emu
