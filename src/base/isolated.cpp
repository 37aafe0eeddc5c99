#include "base/isolated.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <span>
#include <utility>

#include "base/error.h"

namespace hearth {
namespace {

constexpr size_t kSizeBytes = sizeof(int64_t);

bool write_all(int socket, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool read_all(int socket, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = recv(socket, bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool write_text(int socket, std::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  std::array<char, kSizeBytes> head{};
  std::memcpy(head.data(), &size, kSizeBytes);
  return write_all(socket, head) && write_all(socket, text);
}

std::optional<std::string> read_text(int socket) {
  std::array<char, kSizeBytes> head{};
  if (!read_all(socket, head)) return std::nullopt;
  int64_t size = 0;
  std::memcpy(&size, head.data(), kSizeBytes);
  std::string text(static_cast<size_t>(size), '\0');
  if (!read_all(socket, text)) return std::nullopt;
  return text;
}

/// Request loop of the forked process. noexcept: an exception must not unwind into stack frames that were
/// copied from the parent.
[[noreturn]] void serve(pid_t parent, int socket, const IsolatedProcess::Function& function) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // the parent has died before the prctl call
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) std::signal(signal, SIG_IGN);
  try {
    while (const std::optional<std::string> request = read_text(socket)) {
      const std::string answer = function(*request);
      if (std::ssize(answer) > IsolatedProcess::kMaxReplyBytes || !write_text(socket, answer)) break;
    }
  } catch (...) {
    _exit(1);
  }
  _exit(0);
}

}  // namespace

IsolatedProcess::~IsolatedProcess() { end(); }

void IsolatedProcess::start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    user_error("cannot create a socket for the reader process: {}; raise the limit of open files (ulimit -n)",
               std::strerror(errno));
  const pid_t parent = getpid();
  // Output that is not flushed before fork() would be written by both processes.
  std::fflush(nullptr);
  process_ = fork();
  if (process_ == 0) {
    close(ends[0]);
    serve(parent, ends[1], function_);
  }
  close(ends[1]);
  socket_ = ends[0];
  if (process_ < 0) {
    const int error = errno;
    end();
    user_error(
        "cannot start the reader process: {}; raise the limits of processes and memory (ulimit -u, ulimit "
        "-v)",
        std::strerror(error));
  }
}

void IsolatedProcess::end() {
  if (socket_ >= 0) close(std::exchange(socket_, -1));
  if (process_ <= 0) return;
  const pid_t process = std::exchange(process_, -1);
  kill(process, SIGKILL);
  // A process that is blocked in the kernel does not end. It is waited for at most 20 ms; later, init reaps
  // it.
  for (int tries = 0; tries < 20 && waitpid(process, nullptr, WNOHANG) == 0; ++tries) {
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000};
    nanosleep(&pause, nullptr);
  }
}

void IsolatedProcess::send(std::string_view request, double seconds) {
  HEARTH_CHECK(state_ != State::waiting);
  if (process_ < 0) start();
  received_.clear();
  deadline_ =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  state_ = write_text(socket_, request) ? State::waiting : State::lost;
  if (state_ == State::lost) end();
}

bool IsolatedProcess::read_some() {
  std::array<char, 1 << 16> bytes;
  const ssize_t count = recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  received_.append(bytes.data(), static_cast<size_t>(count));
  return count > 0;
}

IsolatedProcess::State IsolatedProcess::look() {
  if (state_ != State::waiting) return state_;
  bool open = true;
  for (size_t before = received_.size() + 1; open && before != received_.size();) {
    before = received_.size();
    open = read_some();
  }
  int64_t size = 0;
  if (received_.size() >= kSizeBytes) std::memcpy(&size, received_.data(), kSizeBytes);
  if (received_.size() >= kSizeBytes && std::ssize(received_) - static_cast<int64_t>(kSizeBytes) == size) {
    state_ = State::answered;
  } else if (!open || Clock::now() >= deadline_) {
    state_ = State::lost;
    end();
  }
  return state_;
}

std::string IsolatedProcess::take() {
  HEARTH_CHECK(state_ == State::answered);
  state_ = State::idle;
  return received_.substr(kSizeBytes);
}

std::optional<std::string> IsolatedProcess::ask(std::string_view request, double seconds) {
  send(request, seconds);
  while (look() == State::waiting) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    pollfd wait{.fd = socket_, .events = POLLIN, .revents = 0};
    poll(&wait, 1, static_cast<int>(std::max<int64_t>(0, left) + 1));
  }
  if (state_ == State::answered) return take();
  state_ = State::idle;
  return std::nullopt;
}

}  // namespace hearth
