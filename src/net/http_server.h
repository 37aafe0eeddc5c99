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

/// Handles a request. Called by one of num_threads threads; must return soon. A UserError becomes a reply
/// with status 400, HttpFault one with its status, other exceptions one with 500.
using HttpHandler = std::function<void(const Exchange&)>;
/// Calls a handler; replies to its exceptions as described above. For handlers that run in other threads.
void handle_request(const Exchange& exchange, const HttpHandler& handler);

/// An HTTP/1.1 server. One thread waits for all connections (epoll), so idle and slow clients cost no thread.
/// Protects against requests from other web sites: the header Host must be an IP address, localhost, `host`
/// or one of `allowed_hosts` (DNS rebinding), and the header Origin of a request other than GET must match
/// it.
class HttpServer {
 public:
  /// Listens. Throws a UserError if the address is invalid or the port in use.
  explicit HttpServer(HttpServerOptions options);
  /// Calls stop(0).
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  enum class Access { token, open };
  /// Adds a route before start(). `path`: an exact path, or a prefix that ends in '*'; the longest match
  /// wins. GET routes answer HEAD too.
  void on(std::string method, std::string path, HttpHandler handler, Access access = Access::token);
  /// Adds a GET route for each file; the Content-Type follows from the extension; a path that ends in '/'
  /// is HTML. A Content-Security-Policy
  /// allows HTML to load styles, scripts and images from this server only.
  void add_files(std::span<const StaticFile> files);
  void start();
  /// Closes the listener and idle connections, waits until running exchanges end, for at most `grace`, and
  /// closes the rest.
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

/// Receives SIGINT and SIGTERM instead of ending the process; a second one of the same kind ends it. At most
/// one exists at a time.
class StopSignals {
 public:
  StopSignals();
  /// Restores the previous handlers.
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  /// Waits for one of the signals.
  void wait();

 private:
  struct sigaction on_interrupt_, on_terminate_;  ///< previous handlers
};

}  // namespace hearth::net
