#pragma once

#include <cstddef>

namespace hearth::emu {

/// A flow of control with its own stack (a coroutine). The fibers of one OS thread switch to each other.
/// After leave_for(), no destructor runs for the objects that remain on the stack of the fiber that was left.
class Fiber {
 public:
  /// The OS thread's original flow of control.
  Fiber() = default;
  /// Creates a fiber that runs `entry(argument)`, which must not return but end with leave_for().
  Fiber(void (*entry)(void*), void* argument) : entry_(entry), argument_(argument) {}
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next switch to this fiber start from `entry` again.
  void restart();
  /// Continues with `to`; returns when a fiber switches back to this one, which must be the running fiber.
  void switch_to(Fiber& to) { jump(to, false); }
  /// Continues with `to` and never returns.
  void leave_for(Fiber& to) { jump(to, true); }

  static constexpr size_t kStackBytes = size_t{256} << 10;

 private:
  struct Start;
  void jump(Fiber& to, bool for_good);

  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* stack_ = nullptr;  ///< lowest address of the stack; for the OS thread as reported by AddressSanitizer
  size_t stack_bytes_ = 0;
  bool owns_stack_ = false;
  void* context_ = nullptr;     ///< registers saved when the fiber was left
  void* fake_stack_ = nullptr;  ///< AddressSanitizer's fake stack
};

}  // namespace hearth::emu
