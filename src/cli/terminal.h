#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "distributed/heartbeat.h"
#include "run/trainer.h"

namespace hearth::cli {

/// What a run says on standard output: one live line where that is a terminal, plain lines elsewhere. Who
/// reads may take any time, and may leave: that is said once, and the run goes on.
class Terminal {
 public:
  explicit Terminal(distributed::Heartbeat heartbeat = {});
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void progress(const run::Progress& p);
  void message(const std::string& text);
  /// On standard error.
  void warn(const std::string& text);

 private:
  size_t write_live(char* text, size_t size, const run::Progress& p) const;
  static size_t write_plain(char* text, size_t size, const run::Progress& p);
  void put(std::string_view text);
  void clear();

  distributed::Heartbeat heartbeat_;
  bool live_;
  bool color_;
  bool taken_ = true;  ///< what was put so far
};

}  // namespace hearth::cli
