#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "distributed/heartbeat.h"
#include "run/ending.h"
#include "run/reporter.h"

namespace hearth::cli {

/// Prints progress and messages of a run to `out`: on a terminal one line that is updated in place,
/// otherwise a line per report. A write blocks while the program that reads the output is not reading. If
/// that program closes the pipe, a warning is printed once to standard error and further output is discarded;
/// the run continues.
class Terminal : public run::Reporter {
 public:
  /// `out`: standard output or standard error.
  explicit Terminal(distributed::Heartbeat heartbeat = {}, std::FILE* out = stdout);
  ~Terminal() override;
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void progress(const run::Progress& p) override;
  void message(const std::string& text) override;
  /// Prints to standard error.
  void warn(const std::string& text) override;

 private:
  size_t write_live(char* text, size_t size, const run::Progress& p) const;
  void put(std::string_view text);
  void clear();

  distributed::Heartbeat heartbeat_;
  std::FILE* out_;
  bool live_;
  bool color_;
  bool is_writable_ = true;  ///< false after a write has failed
};

/// Return a Terminal for standard output or standard error; functions for run::LaunchOptions::open_reporter.
/// `heartbeat`: set to Phase::reporting during writes.
std::unique_ptr<run::Reporter> open_terminal(distributed::Heartbeat heartbeat);
std::unique_ptr<run::Reporter> open_error_terminal(distributed::Heartbeat heartbeat);

/// Prints the error message, if any, to standard error and returns the exit status.
int print_error(const run::ExitStatus& ending);

}  // namespace hearth::cli
