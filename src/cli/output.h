#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

#include "base/text.h"

namespace hearth::cli {

/// Prints formatted text. All text output of commands must use this function, which replaces control
/// characters, so that names from files cannot control the terminal (printable(), base/text.h).
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

/// Answers the requests of another program: for each line of standard input, which is a JSON object, prints
/// the response as one line of JSON, until the end of the input. `answer`: returns the response to a request.
/// If it throws a UserError, the response is {"error": MESSAGE}.
void answer_requests(const std::function<Json(const Json& request)>& answer);

}  // namespace hearth::cli
