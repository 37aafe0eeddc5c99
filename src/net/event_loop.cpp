#include "net/event_loop.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"

namespace hearth::net {
namespace {

/// Ids of the sources of epoll events; each connection has its own id.
constexpr uint64_t kListener = 0, kWakeup = 1, kFirstConnection = 2;
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kPingInterval = std::chrono::seconds(15);
/// Interval between two checks of all timeouts.
constexpr auto kTick = std::chrono::milliseconds(200);

void add_to_epoll(int epoll, int descriptor, uint64_t id, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = id}};
  epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

}  // namespace

EventLoop::EventLoop(int listener, const HttpServerOptions& options, std::function<void(Exchange)> dispatch)
    : listener_(listener),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      options_(options),
      dispatch_(std::move(dispatch)),
      next_id_(kFirstConnection) {
  add_to_epoll(epoll_, listener_, kListener, EPOLLIN);
  add_to_epoll(epoll_, wakeup_->descriptor(), kWakeup, EPOLLIN);
}

EventLoop::~EventLoop() {
  while (!connections_.empty()) close_connection(*connections_.begin()->second);
  if (listener_ >= 0) close(listener_);
  close(epoll_);
}

void EventLoop::stop(std::chrono::milliseconds grace) {
  stop_at_ = (Clock::now() + grace).time_since_epoch().count();
  is_stopping_ = true;
  wakeup_->wake(kWakeup);
}

void EventLoop::run() {
  auto next_tick = Clock::now() + kTick;
  while (!is_stopping_ || (!connections_.empty() && Clock::now().time_since_epoch().count() < stop_at_)) {
    constexpr int kMaxEvents = 64;
    epoll_event events[kMaxEvents];
    const int timeout = connections_.empty() && !is_stopping_ ? -1 : static_cast<int>(kTick.count());
    const int count = epoll_wait(epoll_, events, kMaxEvents, timeout);
    for (int i = 0; i < count; ++i) {
      const uint64_t id = events[i].data.u64;
      if (id == kListener) accept_all();
      if (const auto found = connections_.find(id); found != connections_.end())
        handle(*found->second, events[i].events);
    }
    for (const uint64_t id : wakeup_->take())
      if (const auto found = connections_.find(id); found != connections_.end()) send_pending(*found->second);
    if (is_stopping_ || Clock::now() >= next_tick) {
      check_timeouts();
      next_tick = Clock::now() + kTick;
    }
    closed_.clear();
  }
  while (!connections_.empty()) close_connection(*connections_.begin()->second);
  closed_.clear();
}

void EventLoop::accept_all() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EMFILE || errno == ENFILE) evict_one();
      return;
    }
    if (connections_.size() >= options_.max_connections) evict_one();
    if (connections_.size() >= options_.max_connections) {
      close(socket);
      continue;
    }
    const int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    auto connection = std::make_unique<Connection>();
    connection->socket = socket;
    connection->id = next_id_++;
    connection->since = Clock::now();
    connection->events = EPOLLIN | EPOLLRDHUP;
    add_to_epoll(epoll_, socket, connection->id, connection->events);
    connections_.emplace(connection->id, std::move(connection));
  }
}

/// Closes the connection that has been in its phase for longest, among those without a running exchange.
void EventLoop::evict_one() {
  Connection* oldest = nullptr;
  for (const auto& [id, connection] : connections_) {
    if (connection->phase == Phase::responding) continue;
    if (oldest == nullptr || connection->since < oldest->since) oldest = connection.get();
  }
  if (oldest != nullptr) close_connection(*oldest);
}

/// Handles the epoll events of a connection.
void EventLoop::handle(Connection& connection, uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) return close_connection(connection);
  if (connection.phase == Phase::responding && (events & EPOLLRDHUP) != 0) {
    connection.outbox->is_open = false;
    const std::lock_guard lock(connection.outbox->mutex);
    connection.outbox->closes = true;
  }
  if ((events & EPOLLIN) != 0 && connection.phase != Phase::responding) receive(connection);
  if (connection.socket >= 0) send_pending(connection);
}

void EventLoop::receive(Connection& connection) {
  char bytes[64 << 10];
  const ssize_t count = recv(connection.socket, bytes, sizeof bytes, 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close_connection(connection);
  if (connection.phase == Phase::lingering) return;
  if (connection.phase == Phase::idle) enter(connection, Phase::reading);
  connection.in.append(bytes, static_cast<size_t>(count));
  wakeup_->buffered_bytes += static_cast<size_t>(count);
  try {
    advance(connection);
  } catch (const HttpFault& fault) {
    refuse(connection, fault);
  }
}

/// Dispatches the next request if it is complete.
void EventLoop::advance(Connection& connection) {
  if (wakeup_->buffered_bytes > options_.max_buffered_bytes)
    throw HttpFault{503, "the requests in memory exceed the limit of the server; try again later"};
  if (!connection.head && !parse_request(connection)) return;
  HttpHead& head = *connection.head;
  if (connection.in.size() < head.body_bytes) return;
  head.request.body = connection.in.substr(0, head.body_bytes);
  connection.in.erase(0, head.body_bytes);
  connection.outbox = std::make_shared<Outbox>();
  connection.outbox->closes = is_stopping_;
  enter(connection, Phase::responding);
  auto exchange =
      std::make_shared<ExchangeHandle>(std::move(head.request), connection.outbox, wakeup_, connection.id);
  connection.head.reset();
  update_events(connection);
  dispatch_(std::move(exchange));
}

/// Parses the headers. Returns false if they are incomplete.
bool EventLoop::parse_request(Connection& connection) {
  std::string& in = connection.in;
  const size_t end = in.find(kHeadEnd, connection.num_scanned);
  if (std::min(end, in.size()) > kMaxHeadBytes)
    throw HttpFault{
        431, "the headers exceed " + std::to_string(kMaxHeadBytes) + " bytes; send fewer or shorter headers"};
  if (end == std::string::npos) {
    connection.num_scanned = in.size() - std::min(in.size(), kHeadEnd.size() - 1);
    return false;
  }
  const size_t head_bytes = end + kHeadEnd.size();
  connection.head = parse_head(std::string_view(in).substr(0, head_bytes));
  connection.num_scanned = 0;
  in.erase(0, head_bytes);
  wakeup_->buffered_bytes -= head_bytes;
  if (connection.head->body_bytes > options_.max_body_bytes)
    throw HttpFault{413, "the body has " + std::to_string(connection.head->body_bytes) +
                             " bytes, but at most " + std::to_string(options_.max_body_bytes) +
                             " are allowed; send a smaller one"};
  const std::string* expects = connection.head->request.header("expect");
  if (expects != nullptr && lowered(*expects) == "100-continue" && in.size() < connection.head->body_bytes)
    connection.out += "HTTP/1.1 100 Continue\r\n\r\n";
  return true;
}

/// Replies with the status and message of the fault, and closes the connection afterwards.
void EventLoop::refuse(Connection& connection, const HttpFault& fault) {
  wakeup_->buffered_bytes -= connection.in.size();
  connection.in = {};
  connection.out += formatted(error_reply(fault.status, fault.message), true, false);
  connection.outbox = std::make_shared<Outbox>();
  connection.outbox->closes = connection.outbox->is_complete = true;
  enter(connection, Phase::responding);
  send_pending(connection);
}

/// Sends bytes until none are left or the socket would block, and calls finish_response() once a complete
/// response is sent. Moves bytes from the outbox only after all earlier ones are sent, so that the outbox of
/// a slow client reaches its limit and the stream ends.
void EventLoop::send_pending(Connection& connection) {
  bool is_complete = false, closes = false;
  std::string& out = connection.out;
  const auto take = [&] {
    out.clear();
    connection.num_sent = 0;
    if (connection.outbox == nullptr) return false;
    const std::lock_guard lock(connection.outbox->mutex);
    out.swap(connection.outbox->bytes);
    is_complete = connection.outbox->is_complete;
    closes = connection.outbox->closes;
    return !out.empty();
  };
  while (connection.num_sent < out.size() || take()) {
    const ssize_t count = send(connection.socket, out.data() + connection.num_sent,
                               out.size() - connection.num_sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno != EAGAIN) return close_connection(connection);
    if (count < 0) break;
    connection.num_sent += static_cast<size_t>(count);
    if (connection.phase == Phase::responding) connection.since = Clock::now();
  }
  if (out.empty() && is_complete) return finish_response(connection, closes);
  update_events(connection);
}

/// Prepares the connection for the next request, or for being closed by the client.
void EventLoop::finish_response(Connection& connection, bool closes) {
  connection.outbox.reset();
  if (closes) {
    // Closing a socket with unread input would reset the connection before the client reads the response.
    shutdown(connection.socket, SHUT_WR);
    enter(connection, Phase::lingering);
    return update_events(connection);
  }
  enter(connection, connection.in.empty() ? Phase::idle : Phase::reading);
  update_events(connection);
  if (connection.in.empty()) return;
  try {
    advance(connection);
  } catch (const HttpFault& fault) {
    refuse(connection, fault);
  }
}

void EventLoop::enter(Connection& connection, Phase phase) {
  connection.phase = phase;
  connection.since = Clock::now();
}

/// Registers for the epoll events that the phase needs.
void EventLoop::update_events(Connection& connection) {
  const bool is_responding = connection.phase == Phase::responding;
  uint32_t events = is_responding ? 0U : static_cast<uint32_t>(EPOLLIN);
  if (!is_responding || connection.outbox->is_open) events |= EPOLLRDHUP;
  if (!connection.out.empty()) events |= EPOLLOUT;
  if (events == connection.events) return;
  connection.events = events;
  epoll_event event{.events = events, .data = {.u64 = connection.id}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.socket, &event);
}

/// Closes a connection whose phase has lasted too long, or replies with status 408; sends pings.
void EventLoop::check_timeout(Connection& connection) {
  const auto age = Clock::now() - connection.since;
  switch (connection.phase) {
    case Phase::idle:
      if (age > options_.idle_timeout || is_stopping_) close_connection(connection);
      break;
    case Phase::reading:
      if (is_stopping_) return close_connection(connection);
      if (age > (connection.head ? options_.request_timeout : options_.head_timeout))
        refuse(connection, {408, "timeout: the request was not complete in time; send it again"});
      break;
    case Phase::responding:
      if (!connection.out.empty() && age > options_.write_timeout) return close_connection(connection);
      if (connection.out.empty() && age > kPingInterval) send_ping(connection);
      break;
    case Phase::lingering:
      if (age > kLingerTime) close_connection(connection);
      break;
  }
}

/// Keeps proxies from closing a silent event stream, and detects clients that have disappeared.
void EventLoop::send_ping(Connection& connection) {
  {
    const std::lock_guard lock(connection.outbox->mutex);
    if (!connection.outbox->is_event_stream || connection.outbox->is_complete) return;
    connection.outbox->bytes += chunk_of(": ping\n\n", connection.outbox->is_chunked);
  }
  send_pending(connection);
}

/// Checks the timeouts of all connections. Closes the listening socket after stop().
void EventLoop::check_timeouts() {
  if (is_stopping_ && listener_ >= 0) {
    close(listener_);
    listener_ = -1;
  }
  std::vector<Connection*> all;
  for (const auto& [id, connection] : connections_) all.push_back(connection.get());
  for (Connection* connection : all) check_timeout(*connection);
}

void EventLoop::close_connection(Connection& connection) {
  if (connection.outbox != nullptr) connection.outbox->is_open = false;
  wakeup_->buffered_bytes -= connection.in.size();
  close(connection.socket);
  connection.socket = -1;
  const auto node = connections_.extract(connection.id);
  closed_.push_back(std::move(const_cast<std::unique_ptr<Connection>&>(node.mapped())));
}

}  // namespace hearth::net
