#include <algorithm>

#include "serve/page_files.h"

namespace hearth::serve {

void add_pages(net::HttpServer& server, std::string_view start) {
  server.add_files(page_files());
  const auto found = std::ranges::find(page_files(), start, &net::StaticFile::path);
  const net::StaticFile root[] = {{"/", found->text}};
  server.add_files(root);
}

}  // namespace hearth::serve
