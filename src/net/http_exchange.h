#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "net/http_message.h"

namespace hearth::net {

struct HttpReply {
  int status = 200;
  std::string type = "application/json";  ///< Content-Type
  std::string body;
  NamedValues headers;  ///< more headers
};

/// Returns a reply with OpenAI's form of an error: {"error": {"code", "message", "type"}}.
HttpReply error_reply(int status, std::string_view message);

/// A request and its response, which any thread may send, also after the handler has returned. Never
/// blocks: what is written is buffered and sent by the server's thread. If it is destroyed without a
/// response, the client receives status 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  const ServerRequest& request() const { return request_; }
  /// Sends the full response; at most once.
  virtual void reply(HttpReply reply) = 0;
  /// Starts a response of unknown length; at most once. Streams of type text/event-stream get a comment line
  /// after 15 seconds without a write, so every write() must be complete events.
  virtual void begin_stream(std::string_view type = "text/event-stream") = 0;
  /// Appends to the stream. Returns false if the client has left, or has not read the last 8 MiB.
  virtual bool write(std::string_view bytes) = 0;
  virtual void end_stream() = 0;
  /// False as soon as the client has closed the connection.
  virtual bool is_open() const = 0;

 protected:
  ServerRequest request_;
};
using Exchange = std::shared_ptr<HttpExchange>;

}  // namespace hearth::net
