#include "ui/detached_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"

extern char** environ;

namespace hearth::ui {

DetachedProcess::DetachedProcess(const std::string& program, const std::vector<std::string>& arguments,
                                 fs::path output)
    : output_(std::move(output)) {
  refuse_link(output_);
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW,
                                   0666);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes, &signals);
  const int fault = posix_spawn(&process_, program.c_str(), &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (fault != 0) user_error("cannot start {}: {}; check the file", program, std::strerror(fault));
}

std::optional<int> DetachedProcess::status() const {
  int status = 0;
  if (waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string DetachedProcess::last_line() const {
  constexpr int64_t kMaxBytes = 16 << 20;
  constexpr size_t kMaxLineBytes = 500;
  try {
    const std::string text = read_file(output_, kMaxBytes);
    const std::string_view lines = trimmed(text);
    return shortened(lines.substr(lines.rfind('\n') + 1), kMaxLineBytes);
  } catch (const UserError& error) {
    return error.what();
  }
}

}  // namespace hearth::ui
