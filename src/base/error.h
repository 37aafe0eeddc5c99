#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>

namespace hearth {

/// A mistake in what the user gave (recipe, file, budget). The text is one sentence: what was expected, what
/// came, where (file:line or node), what to try. The command line prints it and exits with 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One of several lines, such as a table and what to try.
class UserReport : public UserError {
 public:
  using UserError::UserError;
};

/// A broken invariant of Hearth itself. The command line prints it, asks for a report and exits with 70.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Implementations of user_error and internal_error.
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

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace hearth

/// Throws InternalError naming the condition and the place when `condition` is false.
#define HEARTH_CHECK(condition)                                               \
  do {                                                                        \
    if (!(condition)) ::hearth::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
