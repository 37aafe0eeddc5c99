#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "distributed/heartbeat.h"
#include "run/ending.h"
#include "run/reporter.h"

namespace hearth::cli {

/// What a run says on standard output: one live line where that is a terminal, plain lines elsewhere. Who
/// reads may take any time, and may leave: that is said once, and the run continues.
class Terminal : public run::Reporter {
 public:
  explicit Terminal(distributed::Heartbeat heartbeat = {});
  ~Terminal() override;
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void progress(const run::Progress& p) override;
  void message(const std::string& text) override;
  /// On standard error.
  void warn(const std::string& text) override;

 private:
  size_t write_live(char* text, size_t size, const run::Progress& p) const;
  void put(std::string_view text);
  void clear();

  distributed::Heartbeat heartbeat_;
  bool live_;
  bool color_;
  bool taken_ = true;  ///< what was put so far
};

/// A Terminal, as run::LaunchOptions wants it.
std::unique_ptr<run::Reporter> open_terminal(distributed::Heartbeat heartbeat);

/// Says its words, and returns its status.
int tell(const run::Ending& ending);

}  // namespace hearth::cli
