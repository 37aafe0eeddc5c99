#pragma once

#include <span>
#include <string_view>

#include "net/http_server.h"

namespace hearth::serve {

/// Returns the files of src/serve/page.
std::span<const net::StaticFile> page_files();

/// Adds the files of the pages, and the page `start` ("/chat.html") once more at "/".
void add_pages(net::HttpServer& server, std::string_view start);

}  // namespace hearth::serve
