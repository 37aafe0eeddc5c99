#pragma once

#include <string>

#include "base/function_ref.h"

namespace hearth::run {

/// How a piece of work ended.
struct Ending {
  int status = 0;          ///< to exit with
  std::string words;       ///< for people, on standard error; empty where it threw nothing
  bool has_lines = false;  ///< several of them, else a sentence
};

/// Does `work`, whose result is an exit status. What it throws becomes a sentence, and 2 for a mistake of the
/// user, 69 for a worker that is missing, 71 for a GPU that failed, 70 for what should not be.
Ending ending_of(FunctionRef<int()> work);

}  // namespace hearth::run
