#pragma once

#include <string>

#include "run/trainer_events.h"

namespace hearth::run {

/// Tells people what a run does. Each call returns when it was taken, which may wait for a reader.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void progress(const Progress& progress) = 0;
  /// One or more whole lines, without the last line break.
  virtual void message(const std::string& text) = 0;
  /// What has gone wrong.
  virtual void warn(const std::string& text) = 0;
};

}  // namespace hearth::run
