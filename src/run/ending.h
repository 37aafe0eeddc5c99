#pragma once

#include <string>

#include "base/function_ref.h"

namespace hearth::run {

/// Exit status and error message of a command.
struct ExitStatus {
  int status = 0;             ///< exit status of the process
  std::string error_message;  ///< message to print to standard error; empty if the work threw no exception
  bool has_lines = false;     ///< true if the message has several lines
};

/// Runs `work`, which returns an exit status. Converts an exception to a message and a status: 2 for a user
/// error or lack of memory, 69 for a missing worker (CommError), 71 for a failed GPU, 70 for an internal
/// error.
ExitStatus exit_status_of(FunctionRef<int()> work);

}  // namespace hearth::run
