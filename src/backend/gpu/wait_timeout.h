#pragma once

#include <algorithm>
#include <map>

namespace hearth::gpu {

/// Timeout for waiting on any stream of a GPU: one minute, plus the time allowed for the unfinished work of
/// all its streams, because any of them may wait for any other.
class WaitTimeout {
 public:
  static constexpr double kMinSeconds = 60;

  /// Adds work_seconds to the stream's allowed time, and raises its allowed wait for other workers to at
  /// least wait_seconds.
  void allow(const void* stream, double work_seconds, double wait_seconds) {
    Allowed& allowed = allowed_[stream];
    allowed.work_seconds += work_seconds;
    allowed.wait_seconds = std::max(allowed.wait_seconds, wait_seconds);
  }
  /// Removes the allowed time of a stream whose work is done or that was destroyed.
  void forget(const void* stream) { allowed_.erase(stream); }
  /// Returns the current timeout in seconds.
  double seconds() const {
    double work = 0, wait = kMinSeconds;
    for (const auto& [stream, allowed] : allowed_) {
      work += allowed.work_seconds;
      wait = std::max(wait, allowed.wait_seconds);
    }
    return work + wait;
  }

 private:
  struct Allowed {
    double work_seconds = 0, wait_seconds = 0;
  };
  std::map<const void*, Allowed> allowed_;
};

}  // namespace hearth::gpu
