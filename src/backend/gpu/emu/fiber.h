#pragma once

#include <cstddef>

namespace hearth::emu {

/// A flow of control with a stack of its own; fibers of one OS thread hand over to each other. A fiber that
/// is left for good is abandoned: nothing on its stack is destroyed.
class Fiber {
 public:
  /// The OS thread's own flow of control.
  Fiber() = default;
  /// `entry(argument)` must never return: it ends by leaving for good.
  Fiber(void (*entry)(void*), void* argument) : entry_(entry), argument_(argument) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next switch to it start from `entry` again.
  void restart();
  /// Continues with `to`; comes back when something switches to this fiber, which must be the running one.
  void switch_to(Fiber& to) { jump(to, false); }
  void leave_for(Fiber& to) { jump(to, true); }

  static constexpr size_t kStackBytes = size_t{256} << 10;

 private:
  struct Start;
  void jump(Fiber& to, bool for_good);

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* stack_ = nullptr;  ///< lowest address; of the OS thread: as AddressSanitizer knows it
  size_t stack_bytes_ = 0;
  bool owns_stack_ = false;
  void* place_ = nullptr;       ///< where it was left
  void* fake_stack_ = nullptr;  ///< AddressSanitizer's
};

}  // namespace hearth::emu
