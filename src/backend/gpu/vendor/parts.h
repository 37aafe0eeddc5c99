#pragma once

#include <atomic>
#include <memory>
#include <string_view>

#include "backend/gpu/driver.h"
#include "backend/gpu/patience.h"
#include "backend/gpu/vendor/runtime.h"

namespace hearth::gpu::vendor {

/// A GPU gave no answer: whatever waits for it would wait for ever, the release of memory too. What this
/// process still holds is left to its end.
inline std::atomic<bool> no_answer = false;

/// Throws DeviceError with what the runtime said.
[[noreturn]] void fail(Result result, std::string_view doing);
inline void check(Result result, std::string_view doing) {
  if (result != RUNTIME(Success)) fail(result, doing);
}
/// For destructors: nothing is left to be told.
inline void ignore(Result result) {
  if (result != RUNTIME(Success)) static_cast<void>(RUNTIME(GetLastError)());
}

/// What the streams of an open GPU share.
struct SharedParts {
  int index = 0;
  std::string name;
  /// Something was asked of a stream under recording that a recording cannot keep.
  bool broken_recording = false;
  Patience patience = {};

  /// What follows in this thread is for this GPU.
  void make_current() const { check(RUNTIME(SetDevice)(index), "choosing the GPU"); }
};

std::unique_ptr<Stream::Parts> make_stream(SharedParts& gpu);

}  // namespace hearth::gpu::vendor
