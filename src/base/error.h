#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace hearth {

/// A mistake in the user's input (recipe, file, memory budget). The text is one sentence: what is wrong,
/// where (file:line or node), and what to do. The command line prints it and exits with status 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A UserError with several lines of text, such as a table followed by advice.
class UserReport : public UserError {
 public:
  using UserError::UserError;
};

/// A broken invariant of Hearth itself. The command line prints the text, asks the user to report it, and
/// exits with status 70.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Formats the text and throws; used by user_error and internal_error.
[[noreturn]] void throw_user_error(fmt::string_view format, fmt::format_args args);
[[noreturn]] void throw_internal_error(fmt::string_view format, fmt::format_args args);

/// Throws UserError with a formatted sentence.
template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw_user_error(format, fmt::make_format_args(args...));
}

/// Throws InternalError with a formatted sentence.
template <typename... Args>
[[noreturn]] void internal_error(fmt::format_string<Args...> format, Args&&... args) {
  throw_internal_error(format, fmt::make_format_args(args...));
}

/// Throws InternalError for a failed HEARTH_CHECK.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace hearth

/// Throws an InternalError with the condition, file and line if `condition` is false.
#define HEARTH_CHECK(condition)                                               \
  do {                                                                        \
    if (!(condition)) ::hearth::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
