#include "exec/device/hang_guard.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace hearth::exec {

HangGuard::HangGuard(double timeout_seconds, std::string what)
    : thread_([this, timeout_seconds, what = std::move(what)] {
        std::unique_lock lock(mutex_);
        const std::chrono::duration<double> timeout(timeout_seconds);
        if (ended_.wait_for(lock, timeout, [this] { return is_done_; })) return;
        std::fprintf(stderr, "%s\n", what.c_str());
        std::abort();
      }) {}

HangGuard::~HangGuard() {
  {
    const std::lock_guard lock(mutex_);
    is_done_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace hearth::exec
