#pragma once

#include <atomic>
#include <cstdint>

namespace hearth::emu {

/// Interrupts the OS thread that constructed it by calling `overdue` there, once `progress` has not changed
/// for deadline_seconds of the thread's CPU time (which does not advance while the machine is suspended).
/// `overdue` runs in a signal handler and may leave it by switching to another fiber.
class Watch {
 public:
  Watch(const std::atomic<uint64_t>& progress, double deadline_seconds, void (*overdue)());
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace hearth::emu
