#pragma once

#include <string>

namespace hearth::cli {

/// Address at which the live page listens.
struct PageAddress {
  std::string host = "127.0.0.1";
  int port = 0;  ///< 0: any free port
};

/// Serves the live page of a folder of runs and prints its URL. Returns after SIGINT or SIGTERM.
void serve_live_page(const std::string& runs, const PageAddress& address);

}  // namespace hearth::cli
