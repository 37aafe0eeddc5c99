#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/http_exchange.h"

namespace hearth::net {

/// Wakes the thread of an EventLoop from other threads, and counts the bytes of requests in memory.
class Wakeup {
 public:
  Wakeup();
  ~Wakeup();
  Wakeup(const Wakeup&) = delete;
  Wakeup& operator=(const Wakeup&) = delete;

  /// Wakes the thread of the EventLoop, because the outbox of this connection has changed.
  void wake(uint64_t connection);
  /// Returns the connections that wake() was called for since the last call.
  std::vector<uint64_t> take();
  /// File descriptor that is readable while take() would return connections.
  int descriptor() const { return descriptor_; }
  std::atomic<size_t> buffered_bytes = 0;  ///< bytes of the requests of all connections

 private:
  int descriptor_;
  std::mutex mutex_;
  std::vector<uint64_t> connections_;
};

/// Buffer of a response: any thread appends bytes, and the thread of the EventLoop sends them.
struct Outbox {
  std::mutex mutex;
  std::string bytes;
  bool is_complete = false;      ///< no more bytes follow
  bool closes = false;           ///< the connection is closed after the response
  bool is_event_stream = false;  ///< the EventLoop sends comment lines as pings
  bool is_chunked = false;
  std::atomic<bool> is_open = true;  ///< false: the client has closed the connection
};

/// Formats a full response. `closes`: the connection is closed after the response. `is_head`: omits the body,
/// for the method HEAD.
std::string formatted(const HttpReply& reply, bool closes, bool is_head);
/// Formats a part of a stream, as a chunk of the chunked transfer coding if `is_chunked`.
std::string chunk_of(std::string_view bytes, bool is_chunked);

/// An exchange whose connection belongs to an EventLoop.
class ExchangeHandle final : public HttpExchange {
 public:
  ExchangeHandle(ServerRequest request, std::shared_ptr<Outbox> outbox, std::shared_ptr<Wakeup> wakeup,
                 uint64_t connection);
  ~ExchangeHandle() override;
  void reply(HttpReply reply) override;
  void begin_stream(std::string_view type) override;
  bool write(std::string_view bytes) override;
  void end_stream() override;
  bool is_open() const override { return outbox_->is_open; }

 private:
  std::shared_ptr<Outbox> outbox_;
  std::shared_ptr<Wakeup> wakeup_;
  uint64_t connection_;
  size_t body_bytes_;
  bool has_started_ = false;  ///< guarded by outbox_->mutex
};

}  // namespace hearth::net
