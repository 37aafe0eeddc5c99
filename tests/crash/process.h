#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/file.h"
#include "paths.h"
#include "temporary_folder.h"

namespace hearth {

/// A running `hearth`, its output in a file; killed by the destructor where it still runs.
class Child {
 public:
  /// `file_limit_bytes`: no file of the child may grow beyond it; `memory_limit_bytes`: of its address space;
  /// -1: none.
  Child(std::vector<std::string> arguments, const fs::path& output, int64_t file_limit_bytes = -1,
        int64_t memory_limit_bytes = -1) {
    arguments.insert(arguments.begin(), kProgram);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    set_limit(RLIMIT_FSIZE, file_limit_bytes);
    set_limit(RLIMIT_AS, memory_limit_bytes);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Child() {
    if (pid_ > 0) kill_now();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t process() const { return pid_; }
  bool running() {
    if (pid_ <= 0) return false;
    if (waitpid(pid_, &status_, WNOHANG) != pid_) return true;
    pid_ = -1;
    return false;
  }
  /// SIGKILL. False where it had ended by itself.
  bool kill_now() {
    if (pid_ <= 0) return false;
    kill(pid_, SIGKILL);
    wait();
    return WIFSIGNALED(status_);
  }
  /// The exit code, or -1 after a signal.
  int wait() {
    if (pid_ > 0) waitpid(pid_, &status_, 0);
    pid_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

 private:
  static void set_limit(decltype(RLIMIT_AS) resource, int64_t most) {
    const rlimit limit{static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
    if (most >= 0) setrlimit(resource, &limit);
  }

  pid_t pid_ = -1;
  int status_ = 0;
};

struct Finished {
  int exit_code = 0;
  std::string output;
};
inline Finished run_hearth(std::vector<std::string> arguments, const fs::path& output,
                           int64_t file_limit_bytes = -1) {
  const int code = Child(std::move(arguments), output, file_limit_bytes).wait();
  return {code, read_file(output)};
}

inline std::vector<std::string> train_command(const fs::path& recipe, const fs::path& run) {
  return {"train", recipe.string(), "--out", run.string(), "--resume"};
}

}  // namespace hearth
