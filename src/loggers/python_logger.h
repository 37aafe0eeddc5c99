#pragma once

#include <memory>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Opens a logger that runs python/bridge.py with a Python package, "wandb" or "trackio". The Python is
/// HEARTH_LOGGER_PYTHON, the python3 in the folder of this program, or the python3 in PATH. Output of the
/// package is written to the file PACKAGE.log in kLoggerFolder.
std::unique_ptr<Logger> open_python_logger(const std::string& package);

}  // namespace hearth::loggers
