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
/// Returns the value of the first header with this name, in any case; null if there is none.
const std::string* find_header(std::span<const Header> headers, std::string_view name);

/// Response to a request that reached a server, whatever its status.
struct HttpResponse {
  int status = 0;
  std::string url;              ///< URL that sent this response, after redirects
  std::vector<Header> headers;  ///< of this response only
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
  /// If set, `file_bytes` bytes from `file_offset` of this file are the body instead.
  fs::path file = {};
  int64_t file_offset = 0;
  int64_t file_bytes = 0;

  Redirects redirects = Redirects::any;
  double connect_timeout_seconds = 20;
  double stall_timeout_seconds = 30;    ///< timeout of a transfer that moves no bytes; 0: none
  double total_timeout_seconds = 0;     ///< 0: none
  int64_t max_body_bytes = 64ll << 20;  ///< limit of HttpResponse::body
  /// Receives the body of a successful response piece by piece. Exceptions end the request and reach the
  /// caller of send().
  std::function<void(const HttpResponse& head, std::span<const std::byte> piece)> on_body = {};
  /// Called about once per second and after each piece, with bytes of this transfer; returns false to cancel.
  std::function<bool(int64_t received_bytes, int64_t sent_bytes)> on_progress = {};
};

/// Failure without a complete response. The text names the host, the reason and what to do.
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

/// Sends HTTP requests one at a time and reuses connections. Not for use by several threads at once. Uses
/// libcurl, which is opened by the first client, and its proxy variables (https_proxy, http_proxy, all_proxy,
/// no_proxy). CURL_CA_BUNDLE or SSL_CERT_FILE name a file of trusted certificates.
class HttpClient {
 public:
  /// HttpError if libcurl is not installed.
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Sends the request and returns the response of any status. HttpError without a complete response.
  HttpResponse send(const HttpRequest& request);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the text with all bytes except letters, digits and -._~ as %XX. `keeps_slashes`: keeps / too.
std::string url_encoded(std::string_view text, bool keeps_slashes = false);
/// Returns scheme://host:port of a URL; an empty string if it is not an http or https URL.
std::string url_origin(const std::string& url);

}  // namespace hearth::net
