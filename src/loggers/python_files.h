#pragma once

#include <span>

#include "net/http_server.h"

namespace hearth::loggers {

/// Returns the Python programs that are embedded in this program: /bridge.py.
std::span<const net::StaticFile> python_files();

}  // namespace hearth::loggers
