#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "base/text.h"

namespace hearth::cli {

/// Prints formatted text. All output of commands goes through this function, so that control characters in
/// names from files do not reach the terminal (printable(), base/text.h).
template <typename... Args>
void say(std::FILE* file, fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = printable(fmt::format(format, std::forward<Args>(args)...));
  std::fwrite(text.data(), 1, text.size(), file);
}
template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say(stdout, format, std::forward<Args>(args)...);
}

using Json = nlohmann::ordered_json;

/// Prints a JSON document as one line of ASCII to standard output and flushes it.
void print_json(const Json& document);

/// Answers requests for a session: reads one JSON object per line from standard input and prints one per
/// line, until the end of the input. `answer`: returns the response to a request; if it throws a UserError,
/// the response is {"error": sentence}.
void answer_requests(const std::function<Json(const Json& request)>& answer);

}  // namespace hearth::cli
