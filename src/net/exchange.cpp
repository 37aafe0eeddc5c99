#include "net/exchange.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth::net {
namespace {

/// Max bytes of a stream that wait in the outbox.
constexpr size_t kMaxOutboxBytes = 8 << 20;

std::string head_of(int status, std::string_view type, bool closes) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nDate: {:%a, %d %b %Y %H:%M:%S} GMT\r\nContent-Type: {}\r\nConnection: {}\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n",
      status, reason_phrase(status), fmt::gmtime(std::time(nullptr)), type, closes ? "close" : "keep-alive");
}

}  // namespace

Wakeup::Wakeup() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (descriptor_ < 0)
    user_error("cannot create an event descriptor: {}; raise the limit of open files (ulimit -n)",
               std::strerror(errno));
}
Wakeup::~Wakeup() { close(descriptor_); }

void Wakeup::wake(uint64_t connection) {
  const std::lock_guard lock(mutex_);
  connections_.push_back(connection);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor_, &one, sizeof one);
}

std::vector<uint64_t> Wakeup::take() {
  const std::lock_guard lock(mutex_);
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(descriptor_, &count, sizeof count);
  return std::exchange(connections_, {});
}

std::string formatted(const HttpReply& reply, bool closes, bool is_head) {
  std::string text = head_of(reply.status, reply.type, closes);
  for (const auto& [name, value] : reply.headers) text += fmt::format("{}: {}\r\n", name, value);
  text += fmt::format("Content-Length: {}\r\n\r\n", reply.body.size());
  return is_head ? text : text + reply.body;
}

std::string chunk_of(std::string_view bytes, bool is_chunked) {
  return is_chunked ? fmt::format("{:x}\r\n{}\r\n", bytes.size(), bytes) : std::string(bytes);
}

HttpReply error_reply(int status, std::string_view message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 429 ? "rate_limit_error"
                     : status >= 500 ? "server_error"
                                     : "invalid_request_error";
  const nlohmann::ordered_json body = {{"error", {{"code", status}, {"message", message}, {"type", type}}}};
  using Json = nlohmann::ordered_json;
  return {.status = status, .body = body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

ExchangeHandle::ExchangeHandle(ServerRequest request, std::shared_ptr<Outbox> outbox,
                               std::shared_ptr<Wakeup> wakeup, uint64_t connection)
    : outbox_(std::move(outbox)),
      wakeup_(std::move(wakeup)),
      connection_(connection),
      body_bytes_(request.body.size()) {
  request_ = std::move(request);
  outbox_->is_chunked = !request_.is_http10;
}

ExchangeHandle::~ExchangeHandle() {
  wakeup_->buffered_bytes -= body_bytes_;
  reply(error_reply(500, "the request was not answered"));
  const std::lock_guard lock(outbox_->mutex);
  if (outbox_->is_complete) return;
  // The stream ends without its last chunk, so that the client detects the error.
  outbox_->closes = outbox_->is_complete = true;
  wakeup_->wake(connection_);
}

void ExchangeHandle::reply(HttpReply reply) {
  const std::lock_guard lock(outbox_->mutex);
  if (has_started_) return;
  has_started_ = true;
  outbox_->closes |= !request_.keep_alive;
  outbox_->bytes = formatted(reply, outbox_->closes, request_.method == "HEAD");
  outbox_->is_complete = true;
  wakeup_->wake(connection_);
}

void ExchangeHandle::begin_stream(std::string_view type) {
  const std::lock_guard lock(outbox_->mutex);
  if (has_started_) return;
  has_started_ = true;
  outbox_->closes |= !request_.keep_alive || !outbox_->is_chunked;
  outbox_->is_event_stream = type == "text/event-stream";
  outbox_->bytes = head_of(200, type, outbox_->closes) +
                   (outbox_->is_chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n");
  if (request_.method == "HEAD") outbox_->is_complete = true;
  wakeup_->wake(connection_);
}

bool ExchangeHandle::write(std::string_view bytes) {
  const std::lock_guard lock(outbox_->mutex);
  if (!outbox_->is_open || outbox_->is_complete) return false;
  if (outbox_->bytes.size() + bytes.size() > kMaxOutboxBytes) {
    outbox_->closes = outbox_->is_complete = true;
    wakeup_->wake(connection_);
    return false;
  }
  if (bytes.empty()) return true;  // an empty chunk would end the stream
  outbox_->bytes += chunk_of(bytes, outbox_->is_chunked);
  wakeup_->wake(connection_);
  return true;
}

void ExchangeHandle::end_stream() {
  const std::lock_guard lock(outbox_->mutex);
  if (outbox_->is_complete) return;
  if (outbox_->is_chunked) outbox_->bytes += chunk_of("", true);
  outbox_->is_complete = true;
  wakeup_->wake(connection_);
}

}  // namespace hearth::net
