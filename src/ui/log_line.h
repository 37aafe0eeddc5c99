#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hearth::ui {

/// Contents of a line of trainer_log.jsonl.
struct LogLine {
  int64_t step = -1;
  double elapsed_seconds = -1;                            ///< training time; -1 if the line has none
  std::vector<std::pair<std::string, double>> numbers;    ///< key and value; keys of GPUs: "gpu/0/power_w"
  std::string event;                                      ///< sentence; empty: none
  std::vector<std::pair<size_t, std::string>> throttled;  ///< GPU and reason; empty reason: not throttled
};

/// Parses a line. Returns false if it is not a JSON object with a step of 0 or more. `line` is overwritten;
/// its memory is reused.
bool parse_log_line(std::string_view text, LogLine& line);

}  // namespace hearth::ui
