#include "loggers/processes.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/run_files.h"
#include "loggers/follower.h"
#include "loggers/mlflow.h"
#include "loggers/python_logger.h"
#include "loggers/webhook.h"

namespace hearth::loggers {
namespace {

/// Max bytes of a packet. Longer texts are cut.
constexpr size_t kMaxPacketBytes = 4096;
/// First byte of a packet: kFailure for the failure of a worker, kEndStates[i] for the end of the run with
/// EndState i.
constexpr char kFailure = 'f', kEndStates[] = {'d', 'i', 'c'};
/// Niceness of the logger processes, which gives training priority.
constexpr int kNiceness = 10;

std::string packet_of(char kind, const std::string& text) {
  return kind + text.substr(0, kMaxPacketBytes - 1);
}

void send_packet(int socket, const std::string& packet) {
  // A full buffer drops the packet, because the caller must not wait.
  while (send(socket, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

/// Waits for a packet from the process that runs the training. If that process has ended, returns a crash.
std::optional<Notice> receive(int socket, double timeout_seconds) {
  pollfd wanted{.fd = socket, .events = POLLIN, .revents = 0};
  if (poll(&wanted, 1, static_cast<int>(1000 * timeout_seconds)) <= 0) return std::nullopt;
  char packet[kMaxPacketBytes];
  const ssize_t size = recv(socket, packet, sizeof(packet), 0);
  if (size <= 0)
    return Notice{.is_end = true, .end = {EndState::crashed, "the process ended without a result"}};
  const std::string text(packet + 1, static_cast<size_t>(size) - 1);
  const auto* const state = std::ranges::find(kEndStates, packet[0]);
  if (state == std::end(kEndStates)) return Notice{.is_end = false, .end = {EndState::crashed, text}};
  return Notice{.is_end = true, .end = {static_cast<EndState>(state - kEndStates), text}};
}

}  // namespace

LoggerProcesses::LoggerProcesses(const recipe::Log& log, const fs::path& run, bool resume,
                                 const std::function<void(const std::string&)>& say)
    : run_(run), project_(log.project), name_(log.name), resume_(resume), say_(say) {
  if (!resume && path_exists(run / kLoggerFolder)) {
    refuse_link(run / kLoggerFolder);
    fs::remove_all(run / kLoggerFolder);
  }
  if (!log.webhook.empty()) start("webhook", [url = webhook_url(log.webhook)] { return open_webhook(url); });
  if (log.has(recipe::Logger::mlflow)) {
    check_mlflow();
    start("mlflow", open_mlflow);
  }
  for (const recipe::Logger logger : {recipe::Logger::wandb, recipe::Logger::trackio}) {
    const std::string package(name_of(logger));
    if (log.has(logger)) start(package, [&] { return open_python_logger(package); });
  }
}

void LoggerProcesses::start(const std::string& name, const Open& open) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    user_error("cannot start the logger {}: {}; raise the limit of open files (ulimit -n)", name,
               std::strerror(errno));
  const FileId outdated = resume_ ? FileId{} : id_of(run_ / kLogFile);
  // Without the flush, both processes would write the buffered output.
  std::fflush(nullptr);
  const pid_t process = fork();
  if (process < 0)
    user_error("cannot start the logger {}: {}; raise the limit of processes (ulimit -u)", name,
               std::strerror(errno));
  if (process > 0) {
    ::close(sockets[1]);
    children_.push_back({process, sockets[0]});
    return;
  }
  // Closes the parent's ends of the sockets: this process detects the end of the parent only if no other
  // process has a copy of them.
  ::close(sockets[0]);
  for (const Child& child : children_) ::close(child.socket);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  if (nice(kNiceness) == -1) errno = 0;
  try {
    follow(*open(), {.logger = name,
                     .run = run_,
                     .project = project_,
                     .name = name_,
                     .outdated_log = outdated,
                     .wait = [&](double seconds) { return receive(sockets[1], seconds); },
                     .say = say_});
  } catch (const std::exception& error) {
    say_(name + ": " + error.what());
  }
  std::fflush(nullptr);
  _exit(0);
}

LoggerProcesses::~LoggerProcesses() {
  for (const Child& child : children_) ::close(child.socket);
}

void LoggerProcesses::report_failure(const std::string& text) const {
  for (const Child& child : children_) send_packet(child.socket, packet_of(kFailure, text));
}

void LoggerProcesses::finish(const RunEnd& end) {
  for (const Child& child : children_)
    send_packet(child.socket, packet_of(kEndStates[static_cast<size_t>(end.state)], end.text));
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(kMaxWaitSeconds);
  std::erase_if(children_, [&](const Child& child) {
    while (waitpid(child.process, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) kill(child.process, SIGKILL);
      usleep(10'000);
    }
    ::close(child.socket);
    return true;
  });
}

}  // namespace hearth::loggers
