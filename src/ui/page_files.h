#pragma once

#include <span>

#include "net/http_server.h"

namespace hearth::ui {

/// Returns the files of src/ui/page.
std::span<const net::StaticFile> page_files();

}  // namespace hearth::ui
