#pragma once

#include <algorithm>
#include <map>

namespace hearth::gpu {

/// How long any stream of a GPU may be waited for: a minute, and what the work of all its streams was allowed
/// since each was waited for last, for any of them may wait for any other.
class Patience {
 public:
  static constexpr double kLeastSeconds = 60;

  void allow(const void* stream, double work_seconds, double wait_seconds) {
    Allowed& allowed = allowed_[stream];
    allowed.work_seconds += work_seconds;
    allowed.wait_seconds = std::max(allowed.wait_seconds, wait_seconds);
  }
  /// Its work is done, or it is gone.
  void forget(const void* stream) { allowed_.erase(stream); }
  double seconds() const {
    double work = 0, wait = kLeastSeconds;
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
