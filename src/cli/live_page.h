#pragma once

#include <cstdio>
#include <string>

namespace hearth::cli {

/// Address at which the live page listens, and how it is printed.
struct PageOptions {
  std::string host = "127.0.0.1";
  int port = 0;             ///< 0: any free port
  bool json = false;        ///< prints a line of JSON to standard output
  std::FILE* out = stdout;  ///< receives the URL if `json` is false
};

/// Serves the live page of a folder of runs and prints its URL. Returns after SIGINT or SIGTERM.
void serve_live_page(const std::string& runs, const PageOptions& options);

}  // namespace hearth::cli
