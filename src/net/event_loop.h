#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <unordered_map>

#include "net/exchange.h"
#include "net/http_server_options.h"

namespace hearth::net {

/// Accepts connections, reads requests and sends responses, all in the thread that calls run().
class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  /// `listener`: a listening socket, which the loop closes. `dispatch` receives each complete request.
  EventLoop(int listener, const HttpServerOptions& options, std::function<void(Exchange)> dispatch);
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// Serves connections. Returns after stop() was called, as soon as the running exchanges have ended or
  /// `grace` has passed.
  void run();
  /// Makes run() return: closes idle connections at once, and those with a running exchange after the
  /// response, or after `grace`. May be called by any thread.
  void stop(std::chrono::milliseconds grace);

 private:
  enum class Phase {
    idle,        ///< no byte of the next request has arrived
    reading,     ///< part of a request has arrived
    responding,  ///< the request is complete, but its response is not
    lingering,   ///< the last response was sent; discards input until the client closes the connection
  };
  struct Connection {
    int socket = -1;
    uint64_t id = 0;
    Phase phase = Phase::idle;
    Clock::time_point since;  ///< start of the phase; while responding, time of the last progress
    std::string in;           ///< received bytes that are not parsed yet
    size_t num_scanned = 0;   ///< bytes at the start of `in` that were searched for the end of the headers
    std::optional<HttpHead> head;    ///< set after the headers, until the body is complete
    std::shared_ptr<Outbox> outbox;  ///< null unless responding
    std::string out;                 ///< bytes to send
    size_t num_sent = 0;             ///< bytes of `out` that were sent
    uint32_t events = 0;             ///< events that are registered with epoll
  };

  void accept_all();
  void evict_one();
  void handle(Connection& connection, uint32_t events);
  void receive(Connection& connection);
  void advance(Connection& connection);
  bool parse_request(Connection& connection);
  void refuse(Connection& connection, const HttpFault& fault);
  void send_pending(Connection& connection);
  void finish_response(Connection& connection, bool closes);
  void enter(Connection& connection, Phase phase);
  void update_events(Connection& connection);
  void check_timeout(Connection& connection);
  void send_ping(Connection& connection);
  void check_timeouts();
  void close_connection(Connection& connection);

  int listener_;
  int epoll_;
  HttpServerOptions options_;
  std::function<void(Exchange)> dispatch_;
  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  /// Closed connections, which are freed when the events of the last epoll_wait() are handled.
  std::vector<std::unique_ptr<Connection>> closed_;
  uint64_t next_id_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<Clock::rep> stop_at_ = 0;
};

}  // namespace hearth::net
