#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::ui {

/// A process that keeps running when this process ends. It has a separate session and no input, and writes
/// its output to a file.
class DetachedProcess {
 public:
  /// Starts a program with arguments. Replaces the contents of `output` by the output of the program. Throws
  /// a UserError if the program cannot be started, or if `output` is a symbolic link.
  DetachedProcess(const std::string& program, const std::vector<std::string>& arguments, fs::path output);

  /// Returns the exit status, or 128 + N after signal N; nullopt while the process runs. Does not wait.
  std::optional<int> status() const;
  /// Returns the last line of the output, or the reason why the output cannot be read.
  std::string last_line() const;

 private:
  fs::path output_;
  pid_t process_ = -1;
};

}  // namespace hearth::ui
