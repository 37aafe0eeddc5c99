#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/path.h"

namespace hearth::net {

struct Header {
  std::string name, value;
};
/// Returns the value of the first header with this name (case-insensitive); nullptr if there is none.
const std::string* find_header(std::span<const Header> headers, std::string_view name);

/// Response of a server, with any status.
struct HttpResponse {
  int status = 0;
  std::string url;              ///< URL that sent this response, after redirects
  std::vector<Header> headers;  ///< headers of this response, without those of redirects
  std::string body;             ///< empty if HttpRequest::on_body received it

  bool is_success() const { return status >= 200 && status < 300; }
};

/// Redirects that HttpClient::send() follows; a redirect that is not followed is returned as the response.
enum class Redirects : uint8_t {
  none,
  same_host,  ///< to the same scheme, host and port
  any,        ///< to other hosts too, without the headers Authorization and Cookie; never from https to http
};

struct HttpRequest {
  std::string method = "GET";  ///< GET, HEAD, POST or PUT
  std::string url;             ///< http:// or https://
  std::vector<Header> headers = {};
  std::string body = {};  ///< for POST and PUT
  /// If set, the body is `file_bytes` bytes of this file, starting at `file_offset`.
  fs::path file = {};
  int64_t file_offset = 0;
  int64_t file_bytes = 0;

  Redirects redirects = Redirects::any;
  double connect_timeout_seconds = 20;
  double stall_timeout_seconds = 30;    ///< timeout of a transfer that moves no bytes; 0: none
  double total_timeout_seconds = 0;     ///< 0: none
  int64_t max_body_bytes = 64ll << 20;  ///< limit of HttpResponse::body
  /// Receives the body of a successful response piece by piece. An exception ends the request and is rethrown
  /// by send().
  std::function<void(const HttpResponse& head, std::span<const std::byte> piece)> on_body = {};
  /// Called about once per second and after each piece, with the bytes that this transfer has moved so far.
  /// Returns false to cancel the request.
  std::function<bool(int64_t received_bytes, int64_t sent_bytes)> on_progress = {};
};

/// Error of a request without a complete response. The message contains the host, the reason and a remedy.
class HttpError : public UserError {
 public:
  enum class Kind : uint8_t {
    library,      ///< libcurl is not installed
    request,      ///< invalid URL or header
    unreachable,  ///< the host name is unknown or no connection was established
    certificate,  ///< the server's TLS certificate was not accepted
    timeout,
    interrupted,  ///< the connection ended before the response was complete
    too_large,    ///< the body exceeds max_body_bytes
    redirect,     ///< too many redirects, or one that may not be followed
    cancelled,    ///< on_progress returned false
  };
  HttpError(Kind kind, const std::string& text) : UserError(text), kind_(kind) {}
  Kind kind() const { return kind_; }
  /// True if the same request may succeed later.
  bool is_temporary() const {
    return kind_ == Kind::unreachable || kind_ == Kind::timeout || kind_ == Kind::interrupted;
  }

 private:
  Kind kind_;
};

/// Sends HTTP requests one at a time and reuses connections. Not thread-safe. Uses libcurl, which the first
/// client loads at run time. The environment variables of libcurl set a proxy (https_proxy, http_proxy,
/// all_proxy, no_proxy); CURL_CA_BUNDLE, SSL_CERT_FILE or REQUESTS_CA_BUNDLE names a file of trusted
/// certificates.
class HttpClient {
 public:
  /// Throws an HttpError if libcurl is not installed.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends the request and returns the response, with any status. Throws an HttpError if there is no complete
  /// response.
  HttpResponse send(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Percent-encodes all bytes except letters, digits and -._~ as %XX. `keeps_slashes`: does not encode /
/// either.
std::string url_encoded(std::string_view text, bool keeps_slashes = false);
/// Returns scheme://host:port of a URL; an empty string if it is not an http or https URL.
std::string url_origin(const std::string& url);

}  // namespace hearth::net
