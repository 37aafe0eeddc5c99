#pragma once

#include <atomic>
#include <string_view>

#include "backend/gpu/device.h"
#include "backend/gpu/patience.h"
#include "backend/gpu/vendor/runtime.h"

namespace hearth::gpu {

struct Device::Parts {
  int index = 0;
  DeviceInfo info;
  /// Something was asked of a stream under recording that a recording cannot keep.
  bool broken_recording = false;
  Patience patience = {};
};

namespace vendor {

/// A GPU gave no answer: whatever waits for it would wait for ever, the release of memory too. What this
/// process still holds is left to its end.
inline std::atomic<bool> no_answer = false;

/// Throws DeviceError with what the runtime said.
[[noreturn]] void fail(Result result, std::string_view doing);
inline void check(Result result, std::string_view doing) {
  if (result != RUNTIME(Success)) fail(result, doing);
}
/// What follows in this thread is for that GPU.
inline void make_current(const Device::Parts& device) {
  check(RUNTIME(SetDevice)(device.index), "choosing the GPU");
}
/// For destructors: nothing is left to be told.
inline void ignore(Result result) {
  if (result != RUNTIME(Success)) static_cast<void>(RUNTIME(GetLastError)());
}

}  // namespace vendor
}  // namespace hearth::gpu
