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
  std::string event;                                      ///< a sentence; empty: no event
  std::vector<std::pair<size_t, std::string>> throttled;  ///< GPU and reason; empty reason: not throttled
};

/// Parses a line into `line`, whose memory is reused. Returns false if the text is not a JSON object with a
/// step of at least 0.
bool parse_log_line(std::string_view text, LogLine& line);

}  // namespace hearth::ui
