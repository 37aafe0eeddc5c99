#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "backend/gpu/driver.h"
#include "backend/gpu/vendor/runtime.h"
#include "backend/gpu/wait_timeout.h"

namespace hearth::gpu::vendor {

/// True once a GPU has timed out. Any further wait for it, including freeing memory, might never return; its
/// resources are therefore not freed before the process ends.
inline std::atomic<bool> timed_out = false;

/// Throws DeviceError with the runtime's error text; `doing` names the failed action.
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
  /// True if work that cannot be recorded was queued on a stream that is being recorded.
  bool broken_recording = false;
  WaitTimeout wait_timeout = {};

  /// Makes this GPU current for the calling thread.
  void make_current() const { check(RUNTIME(SetDevice)(index), "selecting the GPU"); }
};

std::unique_ptr<Stream::Parts> make_stream(SharedParts& gpu);

}  // namespace hearth::gpu::vendor
