#pragma once

#include <cstddef>
#include <string>

#include "train/trainer.h"

namespace hearth::cli {

/// What a run says on standard output: one live line where that is a terminal, plain lines elsewhere.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void progress(const train::Progress& p) const;
  void message(const std::string& text) const;
  /// On standard error.
  void warn(const std::string& text) const;

 private:
  size_t write_live(char* text, size_t size, const train::Progress& p) const;
  static size_t write_plain(char* text, size_t size, const train::Progress& p);
  void clear() const;

  bool live_;
  bool color_;
};

}  // namespace hearth::cli
