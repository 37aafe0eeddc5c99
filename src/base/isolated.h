#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hearth {

/// Runs a function in a forked process, one request at a time, so that a hang or a crash of the function does
/// not affect this process. The forked process starts with the first request, is killed if a reply exceeds
/// its timeout, and ends when this object is destroyed. A reply has at most kMaxReplyBytes bytes.
class IsolatedProcess {
 public:
  using Function = std::function<std::string(std::string_view request)>;
  static constexpr int64_t kMaxReplyBytes = int64_t{64} << 20;

  /// `function` runs in the forked process; an exception from it ends that process.
  explicit IsolatedProcess(Function function) : function_(std::move(function)) {}
  ~IsolatedProcess();
  IsolatedProcess(const IsolatedProcess&) = delete;
  IsolatedProcess& operator=(const IsolatedProcess&) = delete;

  /// Returns the reply; nullopt if none arrived within `seconds` or the process died.
  std::optional<std::string> ask(std::string_view request, double seconds);

  /// Non-blocking form of ask(): send() starts a request, look() polls and returns its state, and take()
  /// returns the reply once the state is `answered`. lost: the process died or the timeout passed.
  enum class State { idle, waiting, answered, lost };
  void send(std::string_view request, double seconds);
  State look();
  std::string take();

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  void end();
  /// Reads the bytes that have arrived; returns false if the connection is closed.
  bool read_some();

  Function function_;
  pid_t process_ = -1;
  int socket_ = -1;
  State state_ = State::idle;
  Clock::time_point deadline_;
  std::string received_;  ///< bytes received so far: the length of the reply (8 bytes), then the reply
};

}  // namespace hearth
