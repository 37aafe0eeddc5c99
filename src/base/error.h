#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

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

/// Throws UserError with a formatted sentence.
template <typename... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

/// Throws InternalError with a formatted sentence.
template <typename... Args>
[[noreturn]] void internal_error(fmt::format_string<Args...> format, Args&&... args) {
  throw InternalError(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace hearth

/// Throws InternalError naming the condition and the place when `condition` is false.
#define HEARTH_CHECK(condition)                                               \
  do {                                                                        \
    if (!(condition)) ::hearth::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)
