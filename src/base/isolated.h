#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace hearth {

/// Answers requests in a forked process, one at a time: what never returns there, or ends the process, takes
/// nothing else with it. The process starts with the first request, is killed where it gives no answer in
/// time, and ends with this object. Answers hold at most kMostAnswerBytes.
class Isolated {
 public:
  using Function = std::function<std::string(std::string_view request)>;
  static constexpr int64_t kMostAnswerBytes = int64_t{64} << 20;

  /// `function` runs in the forked process; what it throws ends that.
  explicit Isolated(Function function) : function_(std::move(function)) {}
  ~Isolated();
  Isolated(const Isolated&) = delete;
  Isolated& operator=(const Isolated&) = delete;

  /// The answer; nothing where none came within `seconds`, or the process died of the request.
  std::optional<std::string> ask(std::string_view request, double seconds);

  /// The same for whoever must not wait: send() begins, look() says how far it is, and take() is the answer.
  enum class State { idle, waiting, answered, lost };
  void send(std::string_view request, double seconds);
  State look();
  std::string take();

 private:
  using Clock = std::chrono::steady_clock;
  void start();
  void end();
  /// Reads what is there; false where nothing more can come.
  bool read_some();

  Function function_;
  pid_t process_ = -1;
  int socket_ = -1;
  State state_ = State::idle;
  Clock::time_point deadline_;
  std::string received_;  ///< the size in 8 bytes, then the answer
};

}  // namespace hearth
