#pragma once

#include <memory>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Opens a logger that runs python/bridge.py, which sends reports by a Python package, "wandb" or "trackio".
/// The interpreter is HEARTH_LOGGER_PYTHON if this variable is set, otherwise the python3 in the folder of
/// this program, otherwise the python3 in PATH. The output of the package is appended to PACKAGE.log in
/// kLoggerFolder.
std::unique_ptr<Logger> open_python_logger(const std::string& package);

}  // namespace hearth::loggers
