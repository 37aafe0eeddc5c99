#pragma once

#include <atomic>
#include <cstdint>

namespace hearth::emu {

/// While it lives, the OS thread that made it is interrupted by a call of `overdue` once `progress` has stood
/// still for that much of the thread's processor time, which stands still with the machine. The call comes in
/// a signal handler and may leave by switching to another fiber.
class Watch {
 public:
  Watch(const std::atomic<uint64_t>& progress, double deadline_seconds, void (*overdue)());
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
};

}  // namespace hearth::emu
