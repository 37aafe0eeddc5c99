#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

namespace hearth::tasks {

/// Reports the progress of slow work as text, "encoding images: 120 of 400", at most once every `seconds`.
class ProgressReporter {
 public:
  ProgressReporter(std::function<void(const std::string&)> say, std::string what, int64_t total,
                   double seconds = 10)
      : say_(std::move(say)), activity_(std::move(what)), total_(total), min_interval_(seconds) {}
  /// Reports that `done` units of work are finished, unless the last report is too recent.
  void operator()(int64_t done) {
    const Clock::time_point now = Clock::now();
    if (now - last_ < min_interval_) return;
    last_ = now;
    say_(fmt::format("{}: {} of {}", activity_, done, total_));
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::function<void(const std::string&)> say_;
  std::string activity_;
  int64_t total_;
  std::chrono::duration<double> min_interval_;
  Clock::time_point last_ = Clock::now();
};

}  // namespace hearth::tasks
