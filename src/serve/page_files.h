#pragma once

#include <span>
#include <string_view>

#include "net/http_server.h"

namespace hearth::serve {

/// Returns the files of src/serve/page, which are compiled into the program.
std::span<const net::StaticFile> page_files();

/// Adds a route for each page file, and a route for "/" with the page `start`, such as "/chat.html".
void add_pages(net::HttpServer& server, std::string_view start);

}  // namespace hearth::serve
