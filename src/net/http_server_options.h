#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace hearth::net {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  ///< address to listen on, or a host name that resolves to one
  int port = 0;                    ///< 0: any free port
  /// Secret that requests for routes with Access::token must contain; empty: none. Accepted as
  /// `Authorization: Bearer TOKEN`, and from browsers as `?token=TOKEN`, which sets a cookie and redirects to
  /// the URL without the token.
  std::string token;
  std::vector<std::string> allowed_hosts = {};  ///< additional names that the header Host may contain
  size_t max_body_bytes = 8 << 20;
  size_t max_buffered_bytes = 256 << 20;  ///< bytes of the requests of all connections together
  size_t max_connections = 4096;          ///< at the limit, the longest-idle connection is closed
  std::chrono::milliseconds request_timeout = std::chrono::seconds(60);  ///< from first to last byte
  std::chrono::milliseconds head_timeout = std::chrono::seconds(10);     ///< for the headers alone
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(60);     ///< between requests
  std::chrono::milliseconds write_timeout = std::chrono::seconds(30);    ///< while a client reads nothing
  int num_threads = 4;                                                   ///< threads that run handlers
};

}  // namespace hearth::net
