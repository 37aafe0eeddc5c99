#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "backend/gpu/driver.h"
#include "backend/gpu/vendor/runtime.h"
#include "backend/gpu/wait_timeout.h"

namespace hearth::gpu::vendor {

/// True once a GPU has timed out. Any further wait for it, including freeing memory, might never return; its
/// resources are therefore not freed before the process ends.
inline std::atomic<bool> timed_out = false;

/// Returns "copying failed: out of memory (hipErrorOutOfMemory)"; `doing` names the failed action.
std::string failure_text(Result result, std::string_view doing);
/// Throws DeviceError with that text.
[[noreturn]] void fail(Result result, std::string_view doing);
/// Throws DeviceError naming what was being done (`doing`), unless the result is Success.
inline void check(Result result, std::string_view doing) {
  if (result != RUNTIME(Success)) fail(result, doing);
}
/// Ignores a failed result and clears the runtime's error. For destructors, which cannot report errors.
inline void ignore(Result result) {
  if (result != RUNTIME(Success)) static_cast<void>(RUNTIME(GetLastError)());
}

/// State shared by the streams of an open GPU.
struct SharedParts {
  int index = 0;
  std::string name;
  bool low_priority = false;  ///< true if streams get the lowest priority
  bool is_recording = false;
  /// First reason why the work cannot be recorded; empty if it can.
  std::string recording_fault;
  WaitTimeout wait_timeout = {};

  /// Makes this GPU current for the calling thread.
  void make_current() const { check(RUNTIME(SetDevice)(index), "selecting the GPU"); }
  /// Stores the reason unless there is one.
  void break_recording(std::string fault) {
    if (recording_fault.empty()) recording_fault = std::move(fault);
  }
};

std::unique_ptr<Stream::Parts> make_stream(SharedParts& gpu);

}  // namespace hearth::gpu::vendor
