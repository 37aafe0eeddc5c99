#include "net/http_server.h"

#include <fmt/format.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "net/access.h"
#include "net/event_loop.h"

namespace hearth::net {
namespace {

/// Number of file descriptors that are reserved for files other than connections.
constexpr rlim_t kOtherDescriptors = 256;

/// Raises the soft limit of open files of this process, and returns the max number of connections under it.
size_t allow_connections(size_t max_connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return max_connections;
  const rlim_t wanted = std::min<rlim_t>(max_connections + kOtherDescriptors, limit.rlim_max);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  return std::min<size_t>(max_connections,
                          std::max<rlim_t>(limit.rlim_cur, kOtherDescriptors + 64) - kOtherDescriptors);
}

int listen_on(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int fault = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); fault != 0)
    user_error("--host {}: {}; use an address of this machine, such as 127.0.0.1", host, gai_strerror(fault));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> address(found, freeaddrinfo);
  const int listener = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int one = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, address->ai_addr, address->ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0)
    return listener;
  const int fault = errno;
  close(listener);
  if (fault == EADDRINUSE)
    user_error("port {} of {} is in use; choose another --port, or --port 0 for any free port", port, host);
  user_error("cannot listen on port {} of {}: {}; choose another --port or --host", port, host,
             std::strerror(fault));
}

int port_of(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  char port[NI_MAXSERV];
  getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port, sizeof port, NI_NUMERICSERV);
  return std::atoi(port);
}

std::string_view content_type(std::string_view path) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".png", "image/png"},
  };
  for (const auto& [ending, type] : kTypes)
    if (path.ends_with(ending)) return type;
  if (path.ends_with('/')) return "text/html; charset=utf-8";
  return "text/plain; charset=utf-8";
}

constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src "
    "'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Event descriptor to which the signal handlers of StopSignals write.
int stop_event = -1;

void report_stop(int) {
  const int saved = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_event, &one, sizeof one);
  errno = saved;
}

struct Route {
  std::string method, path;
  HttpHandler handler;
  HttpServer::Access access;

  /// True if the path of a request is this path or starts with its prefix.
  bool matches_path(std::string_view request) const {
    return path.ends_with('*') ? request.starts_with(std::string_view(path).substr(0, path.size() - 1))
                               : request == path;
  }
};

}  // namespace

struct HttpServer::State {
  explicit State(HttpServerOptions given)
      : options(std::move(given)), listener(listen_on(options.host, options.port)), port(port_of(listener)) {
    options.max_connections = allow_connections(options.max_connections);
  }

  void dispatch(Exchange exchange) {
    {
      const std::lock_guard lock(mutex);
      queue.push_back(std::move(exchange));
    }
    changed.notify_one();
  }

  /// Runs a worker thread: handles exchanges from the queue.
  void work() {
    while (true) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return is_ending || !queue.empty(); });
      if (queue.empty()) return;
      const Exchange exchange = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      if (exchange->is_open()) handle(exchange);
    }
  }

  /// Checks host, origin and token of a request, and calls the handler of its route.
  void handle(const Exchange& exchange) {
    const ServerRequest& request = exchange->request();
    if (auto refusal = refuse_other_sites(request, options.host, options.allowed_hosts))
      return exchange->reply(std::move(*refusal));
    const Route* route = find_route(request);
    if (route == nullptr || route->access == Access::token) {
      const std::string cookie = fmt::format("hearth_{}", port);
      if (auto refusal = refuse_without_token(request, options.token, cookie))
        return exchange->reply(std::move(*refusal));
    }
    if (route == nullptr)
      return exchange->reply(
          error_reply(404, fmt::format("there is no page or endpoint {}; check the URL", request.path)));
    if (!route->handler)
      return exchange->reply(
          error_reply(405, fmt::format("the method {} is not allowed for {}; use another method",
                                       request.method, request.path)));
    handle_request(exchange, route->handler);
  }

  /// Returns the route with the longest path that matches the request. If only the method does not match,
  /// returns a route without a handler; if no path matches, nullptr.
  const Route* find_route(const ServerRequest& request) const {
    static const Route kOtherMethod{};
    const Route* found = nullptr;
    bool has_path = false;
    const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
    for (const Route& route : routes) {
      if (!route.matches_path(request.path)) continue;
      has_path = true;
      if (route.method == method && (found == nullptr || route.path.size() > found->path.size()))
        found = &route;
    }
    return found == nullptr && has_path ? &kOtherMethod : found;
  }

  HttpServerOptions options;
  int listener, port;
  std::vector<Route> routes;
  std::optional<EventLoop> loop;
  std::thread loop_thread;
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Exchange> queue;
  bool is_ending = false;
};

HttpServer::HttpServer(HttpServerOptions options) : state_(std::make_unique<State>(std::move(options))) {}

HttpServer::~HttpServer() {
  if (!state_->loop) close(state_->listener);
  stop({});
}

void HttpServer::on(std::string method, std::string path, HttpHandler handler, Access access) {
  state_->routes.push_back({std::move(method), std::move(path), std::move(handler), access});
}

void HttpServer::add_files(std::span<const StaticFile> files) {
  for (const StaticFile& file : files) {
    on("GET", std::string(file.path), [file](const Exchange& exchange) {
      exchange->reply({.type = std::string(content_type(file.path)),
                       .body = std::string(file.text),
                       .headers = {{"Content-Security-Policy", kContentPolicy}}});
    });
  }
}

void HttpServer::start() {
  State& state = *state_;
  state.loop.emplace(state.listener, state.options,
                     [&state](Exchange exchange) { state.dispatch(std::move(exchange)); });
  state.loop_thread = std::thread([&state] { state.loop->run(); });
  for (int i = 0; i < state.options.num_threads; ++i) state.workers.emplace_back([&state] { state.work(); });
}

void HttpServer::stop(std::chrono::milliseconds grace) {
  if (!state_->loop_thread.joinable()) return;
  state_->loop->stop(grace);
  state_->loop_thread.join();
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_ending = true;
    state_->queue.clear();
  }
  state_->changed.notify_all();
  for (std::thread& worker : state_->workers) worker.join();
}

int HttpServer::port() const { return state_->port; }

std::string HttpServer::url() const {
  const std::string& host = state_->options.host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}/", is_ipv6 ? "[" + host + "]" : host, state_->port);
}

void handle_request(const Exchange& exchange, const HttpHandler& handler) {
  try {
    handler(exchange);
  } catch (const HttpFault& fault) {
    exchange->reply(error_reply(fault.status, fault.message));
  } catch (const UserError& error) {
    exchange->reply(error_reply(400, error.what()));
  } catch (const std::exception& error) {
    exchange->reply(error_reply(500, error.what()));
  }
}

std::string random_token() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    internal_error("getrandom: {}", std::strerror(errno));
  std::string token;
  for (const unsigned char byte : bytes) token += fmt::format("{:02x}", byte);
  return token;
}

StopSignals::StopSignals() {
  stop_event = eventfd(0, EFD_CLOEXEC);
  struct sigaction action = {};
  action.sa_handler = report_stop;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, &on_interrupt_);
  sigaction(SIGTERM, &action, &on_terminate_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &on_interrupt_, nullptr);
  sigaction(SIGTERM, &on_terminate_, nullptr);
  close(stop_event);
}

void StopSignals::wait() {
  uint64_t count = 0;
  while (read(stop_event, &count, sizeof count) < 0 && errno == EINTR) continue;
}

}  // namespace hearth::net
