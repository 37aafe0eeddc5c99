#pragma once

#include <string>

#include "run/trainer_events.h"

namespace hearth::run {

/// Output of a run for users, such as the terminal. Calls block until the text is written, which may take
/// long if the reader has stopped (a pager, Ctrl-S).
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void progress(const Progress& progress) = 0;
  /// Prints one or more complete lines. `text` does not end with a line break.
  virtual void message(const std::string& text) = 0;
  /// Prints a warning or an error.
  virtual void warn(const std::string& text) = 0;
};

}  // namespace hearth::run
