#pragma once

#include <span>

#include "net/http_server.h"

namespace hearth::loggers {

/// Python programs that are compiled into this program: /bridge.py.
std::span<const net::StaticFile> python_files();

}  // namespace hearth::loggers
