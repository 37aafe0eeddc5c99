#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "net/http_exchange.h"
#include "net/http_server_options.h"

namespace hearth::net {

/// A file that is compiled into the program (CMake: hearth_embed).
struct StaticFile {
  std::string_view path;  ///< "/page.css"
  std::string_view text;
};

/// Handles a request. Runs on one of num_threads threads and must return soon. A UserError becomes a reply
/// with status 400, an HttpFault a reply with its status, any other exception a reply with status 500.
using HttpHandler = std::function<void(const Exchange&)>;
/// Calls a handler and replies to its exceptions as described above, for handlers that run on other threads.
void handle_request(const Exchange& exchange, const HttpHandler& handler);

/// An HTTP/1.1 server. One thread waits for all connections (epoll), so idle and slow clients cost no thread.
/// Protects against requests from other web sites: the header Host must be an IP address, localhost, `host`
/// or one of `allowed_hosts` (DNS rebinding), and the header Origin of a request other than GET and HEAD must
/// match the header Host.
class HttpServer {
 public:
  /// Opens the listening socket. Throws a UserError if the address is invalid or the port is in use.
  explicit HttpServer(HttpServerOptions options);
  /// Calls stop(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Condition for requests of a route. token: they need HttpServerOptions::token; open: none.
  enum class Access { token, open };
  /// Adds a route before start(). `path`: an exact path, or a prefix that ends in '*'; the longest match
  /// wins. GET routes answer HEAD too.
  void on(std::string method, std::string path, HttpHandler handler, Access access = Access::token);
  /// Adds a GET route for each file. The extension sets the Content-Type; a path that ends in '/' is HTML. A
  /// Content-Security-Policy allows pages to load styles, scripts and images from this server only.
  void add_files(std::span<const StaticFile> files);
  /// Starts the threads.
  void start();
  /// Closes the listening socket and idle connections, waits for running exchanges for at most `grace`, and
  /// closes the remaining connections.
  void stop(std::chrono::milliseconds grace);
  int port() const;
  /// Returns the address of the start page, such as "http://127.0.0.1:8080/".
  std::string url() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns a random token of 32 hexadecimal digits.
std::string random_token();

/// Catches the first SIGINT and the first SIGTERM, which then do not end the process; a second signal of the
/// same kind does. At most one object may exist at a time.
class StopSignals {
 public:
  StopSignals();
  /// Restores the previous handlers.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Waits until one of the signals arrives.
  void wait();

 private:
  struct sigaction on_interrupt_, on_terminate_;  ///< previous handlers
};

}  // namespace hearth::net
