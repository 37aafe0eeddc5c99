#include "supervise/worker.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace hearth::supervise {
namespace {

/// Returns the signals to block. SIGINT and SIGTERM are included even if they are ignored, because
/// BlockedSignals::next() also receives blocked signals that are ignored: shells ignore SIGINT for background
/// jobs, but scripts send it to them. An ignored SIGHUP is not included, because nohup ignores it on purpose.
sigset_t signals_to_hold() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

/// Runs `work` in the child process. noexcept: an exception must not unwind into stack frames copied from the
/// parent.
[[noreturn]] void run_child(pid_t parent, FunctionRef<int()> work) noexcept {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);  // the parent has died already
  const sigset_t held = signals_to_hold();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
  sigprocmask(SIG_UNBLOCK, &held, nullptr);
  const int status = work();
  std::fflush(nullptr);
  _exit(status);
}

std::string signal_name(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", name);
}

}  // namespace

Worker::Worker(FunctionRef<int()> work) {
  // Output that is not flushed before fork() would be written by both processes.
  std::fflush(nullptr);
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) run_child(parent, work);
  if (process_ < 0) {
    user_error("cannot start a worker process: {}; raise the limits (ulimit -u, ulimit -v)",
               std::strerror(errno));
  }
}

Worker::~Worker() {
  look();
  if (!running()) return;
  kill_now();
  // Waits at most 100 ms, because a process that is blocked in the kernel may not end for a long time.
  for (int i = 0; i < 100 && running(); ++i) {
    usleep(1000);
    look();
  }
}

void Worker::look() {
  int status = 0;
  while (running() && waitpid(process_, &status, WNOHANG | WUNTRACED | WCONTINUED) == process_) {
    if (WIFCONTINUED(status)) {
      stopped_.reset();
    } else {
      status_ = status;
      WIFSTOPPED(status) ? static_cast<void>(stopped_ = Clock::now()) : static_cast<void>(ended_ = true);
    }
  }
}

int Worker::exit_status() const { return ended_ && WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }

std::string Worker::describe_exit() const {
  if (WIFSTOPPED(status_)) return "was stopped by " + signal_name(WSTOPSIG(status_));
  if (WIFSIGNALED(status_)) return "was killed by " + signal_name(WTERMSIG(status_));
  return fmt::format("ended with status {}", WEXITSTATUS(status_));
}

bool Worker::was_killed() const { return ended_ && WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL; }

void Worker::kill_now() const { kill(process_, SIGKILL); }

BlockedSignals::BlockedSignals() : held_(signals_to_hold()) {
  sigprocmask(SIG_BLOCK, &held_, &before_);
  // If SIGCHLD were ignored, waitpid would not return exit statuses.
  std::signal(SIGCHLD, SIG_DFL);
}

BlockedSignals::~BlockedSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

int BlockedSignals::next(std::chrono::milliseconds timeout) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec time{.tv_sec = seconds.count(),
                      .tv_nsec = std::chrono::nanoseconds(timeout - seconds).count()};
  const int signal = sigtimedwait(&held_, nullptr, &time);
  return signal > 0 ? signal : 0;
}

}  // namespace hearth::supervise
