#pragma once

#include <fmt/format.h>

#include <cstdio>
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

}  // namespace hearth::cli
