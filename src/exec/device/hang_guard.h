#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace hearth::exec {

/// Aborts the process unless it is destroyed within the timeout, for calls into a runtime that may never
/// return. The supervisor then restarts the worker.
class HangGuard {
 public:
  /// Prints `what` to the standard error output before it aborts.
  HangGuard(double timeout_seconds, std::string what);
  ~HangGuard();
  HangGuard(const HangGuard&) = delete;
  HangGuard& operator=(const HangGuard&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_done_ = false;
  std::thread thread_;
};

}  // namespace hearth::exec
