#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hearth::net {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

/// Returns the value of a name; nullptr if it is missing.
const std::string* find_value(const NamedValues& values, std::string_view name);

/// A request that a server received: HTTP/1.1 or HTTP/1.0 (RFC 9112).
struct ServerRequest {
  std::string method;   ///< "GET"
  std::string path;     ///< percent-decoded, without the query; starts with '/'
  NamedValues query;    ///< decoded names and values after '?'
  NamedValues headers;  ///< names in lower case
  std::string body;
  bool is_http10 = false;
  bool keep_alive = true;  ///< false: the client wants the connection closed after the response

  const std::string* header(std::string_view name) const { return find_value(headers, name); }
  const std::string* query_value(std::string_view name) const { return find_value(query, name); }
  /// Returns the value of a cookie; empty if it is missing.
  std::string_view cookie(std::string_view name) const;
};

/// Exception that refuses a request: status code and message of the response.
struct HttpFault {
  int status = 400;
  std::string message;
};

/// Max bytes of the request line and headers together, and max number of headers.
constexpr size_t kMaxHeadBytes = 32 << 10, kMaxRequestHeaders = 100;

/// A request without its body, and the size of the body.
struct HttpHead {
  ServerRequest request;
  size_t body_bytes = 0;
};

/// Parses the request line and headers, up to and including the empty line. Throws an HttpFault: 400 if they
/// are malformed or the size of the body is ambiguous, 411 if the body is chunked, 431 if there are too many
/// headers.
HttpHead parse_head(std::string_view head);

/// Decodes %XX, and '+' as a space if `is_query`. Returns nullopt for invalid escapes and for control
/// characters.
std::optional<std::string> percent_decoded(std::string_view text, bool is_query);

/// Returns the reason phrase of a status code: "Not Found".
std::string_view reason_phrase(int status);

}  // namespace hearth::net
