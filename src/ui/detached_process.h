#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::ui {

/// A process that continues when this one ends: it has a separate session, no input, and a file for its
/// output.
class DetachedProcess {
 public:
  /// Starts a program with arguments and overwrites `output`. Throws a UserError on failure, and if `output`
  /// is a symbolic link.
  DetachedProcess(const std::string& program, const std::vector<std::string>& arguments, fs::path output);

  /// Returns its exit status once it has ended, 128 + N after signal N; nullopt while it runs. Does not wait.
  std::optional<int> status() const;
  /// Returns the last line of the output, or why it cannot be read.
  std::string last_line() const;

 private:
  fs::path output_;
  pid_t process_ = -1;
};

}  // namespace hearth::ui
