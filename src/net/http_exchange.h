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
  NamedValues headers;  ///< additional headers
};

/// Returns an error reply in the format of OpenAI's API: {"error": {"code", "message", "type"}}.
HttpReply error_reply(int status, std::string_view message);

/// A request and its response. Any thread may send the response, even after the handler has returned. The
/// functions never block: they buffer the bytes, and the server's thread sends them. If the exchange is
/// destroyed without a response, the client receives status 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  const ServerRequest& request() const { return request_; }
  /// Sends the full response; at most once.
  virtual void reply(HttpReply reply) = 0;
  /// Starts a response of unknown length; at most once. Streams of type text/event-stream get a comment line
  /// after 15 seconds without a write, so each write() must contain complete events.
  virtual void begin_stream(std::string_view type = "text/event-stream") = 0;
  /// Appends to the stream. Returns false if the client has left, the stream has ended, or the client reads
  /// so slowly that more than 8 MiB wait, which ends the stream.
  virtual bool write(std::string_view bytes) = 0;
  /// Ends the stream.
  virtual void end_stream() = 0;
  /// False if the client has closed the connection.
  virtual bool is_open() const = 0;

 protected:
  ServerRequest request_;
};
using Exchange = std::shared_ptr<HttpExchange>;

}  // namespace hearth::net
