#include "net/http_client.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <utility>

#include "base/shared_library.h"
#include "base/text.h"
#include "base/version.h"

namespace hearth::net {
namespace {

using Kind = HttpError::Kind;

constexpr int kMaxRedirects = 10;
constexpr size_t kMaxHeaders = 256;

template <typename... Args>
[[noreturn]] void fail(Kind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw HttpError(kind, fmt::format(format, std::forward<Args>(args)...));
}

/// Functions of libcurl, found at run time.
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) init = nullptr;
  decltype(&curl_easy_cleanup) cleanup = nullptr;
  decltype(&curl_easy_reset) reset = nullptr;
  decltype(&curl_easy_perform) perform = nullptr;
  CURLcode (*set)(CURL*, CURLoption, ...) = nullptr;
  CURLcode (*get_info)(CURL*, CURLINFO, ...) = nullptr;
  decltype(&curl_easy_strerror) describe = nullptr;
  decltype(&curl_slist_append) append = nullptr;
  decltype(&curl_slist_free_all) free_list = nullptr;
  decltype(&curl_url) url = nullptr;
  decltype(&curl_url_cleanup) url_cleanup = nullptr;
  decltype(&curl_url_get) url_get = nullptr;
  decltype(&curl_url_set) url_set = nullptr;
  decltype(&curl_free) free = nullptr;
  std::string fault;

  Curl() {
    const SharedLibrary library({"libcurl.so.4", "libcurl-gnutls.so.4"});
    const bool is_complete =
        library.find("curl_global_init", global_init) && library.find("curl_easy_init", init) &&
        library.find("curl_easy_cleanup", cleanup) && library.find("curl_easy_reset", reset) &&
        library.find("curl_easy_perform", perform) && library.find("curl_easy_setopt", set) &&
        library.find("curl_easy_getinfo", get_info) && library.find("curl_easy_strerror", describe) &&
        library.find("curl_slist_append", append) && library.find("curl_slist_free_all", free_list) &&
        library.find("curl_url", url) && library.find("curl_url_cleanup", url_cleanup) &&
        library.find("curl_url_get", url_get) && library.find("curl_url_set", url_set) &&
        library.find("curl_free", free);
    if (!is_complete)
      fault = library ? library.file() + " is older than version 7.62" : library.fault();
    else if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
      fault = "its initialization failed";
  }
};

const Curl& curl() {
  static const Curl library;
  if (!library.fault.empty())
    fail(Kind::library,
         "HTTP requests need libcurl ({}); install it: apt install libcurl4 (Debian, Ubuntu) or dnf install "
         "libcurl (Fedora)",
         library.fault);
  return library;
}

/// A parsed URL.
class Url {
 public:
  explicit Url(const std::string& text) : handle_(curl().url()) { is_valid_ = follow(text); }
  ~Url() { curl().url_cleanup(handle_); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  /// Replaces this URL by `reference`, which may be relative to it. Returns false if the result is not http
  /// or https.
  bool follow(const std::string& reference) {
    const bool is_plain = std::ranges::none_of(
        reference, [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '\x7f'; });
    if (!is_plain || curl().url_set(handle_, CURLUPART_URL, reference.c_str(), 0) != CURLUE_OK) return false;
    const std::string scheme = part(CURLUPART_SCHEME);
    return (scheme == "http" || scheme == "https") && !host().empty();
  }
  bool is_valid() const { return is_valid_; }
  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    if (curl().url_get(handle_, which, &text, flags) != CURLUE_OK) return "";
    std::string copy = text;
    curl().free(text);
    return copy;
  }
  std::string text() const { return part(CURLUPART_URL); }
  std::string host() const { return lowered(part(CURLUPART_HOST)); }
  std::string origin() const {
    return fmt::format("{}://{}:{}", part(CURLUPART_SCHEME), host(),
                       part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
  }
  bool is_encrypted() const { return part(CURLUPART_SCHEME) == "https"; }

 private:
  CURLU* handle_;
  bool is_valid_ = false;
};

bool is_secret(const Header& header) {
  const std::string name = lowered(header.name);
  return name == "authorization" || name == "cookie" || name == "proxy-authorization";
}

/// A transfer, in which the callbacks of libcurl store their results.
struct Transfer {
  const HttpRequest& request;
  HttpResponse response = {};
  std::exception_ptr thrown = nullptr;
  bool is_cancelled = false;
  bool is_too_large = false;
  int file = -1;
  int64_t num_sent = 0;

  ~Transfer() {
    if (file >= 0) close(file);
  }

  static size_t on_header(char* text, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const std::string_view line = trimmed({text, size});
    HttpResponse& response = transfer.response;
    if (line.starts_with("HTTP/")) {
      // A server may send interim responses (100, 103) before the final one.
      response.headers.clear();
      const size_t space = line.find(' ');
      response.status = space == line.npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
    } else if (const size_t colon = line.find(':'); colon != line.npos) {
      if (response.headers.size() >= kMaxHeaders) return 0;
      response.headers.push_back({.name = std::string(trimmed(line.substr(0, colon))),
                                  .value = std::string(trimmed(line.substr(colon + 1)))});
    }
    return size;
  }

  static size_t on_piece(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    HttpResponse& response = transfer.response;
    try {
      if (transfer.request.on_body && response.is_success()) {
        transfer.request.on_body(response, std::as_bytes(std::span(data, size)));
        return size;
      }
      if (response.body.size() + size > static_cast<size_t>(transfer.request.max_body_bytes)) {
        transfer.is_too_large = true;
        return 0;
      }
      response.body.append(data, size);
      return size;
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 0;
    }
  }

  static size_t on_read(char* data, size_t, size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    const int64_t rest = transfer.request.file_bytes - transfer.num_sent;
    const ssize_t num = pread(transfer.file, data, std::min(size, static_cast<size_t>(rest)),
                              transfer.request.file_offset + transfer.num_sent);
    if (num < 0) return CURL_READFUNC_ABORT;
    transfer.num_sent += num;
    return static_cast<size_t>(num);
  }

  /// Called when libcurl repeats a request because the server had closed a reused connection.
  static int on_seek(void* self, curl_off_t offset, int) {
    static_cast<Transfer*>(self)->num_sent = offset;
    return CURL_SEEKFUNC_OK;
  }

  static int on_progress(void* self, curl_off_t, curl_off_t received, curl_off_t, curl_off_t sent) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      transfer.is_cancelled = !transfer.request.on_progress(received, sent);
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 1;
    }
    return transfer.is_cancelled ? 1 : 0;
  }
};

/// Returns the file of trusted certificates that the environment names; null if it names none.
const char* certificate_file() {
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}) {
    const char* const file = std::getenv(name);
    if (file != nullptr && *file != '\0') return file;
  }
  return nullptr;
}

/// Throws the HttpError for an error code of libcurl. `details`: message of libcurl, may be empty.
[[noreturn]] void fail_transfer(CURLcode code, const char* details, const Url& url,
                                const HttpRequest& request) {
  const std::string host = url.origin();
  const std::string reason = *details != '\0' ? details : curl().describe(code);
  switch (code) {
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
      fail(Kind::unreachable,
           "cannot connect to {}: {}; check the network, and https_proxy if this machine needs a proxy", host,
           reason);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
      fail(Kind::certificate,
           "the certificate of {} was not accepted: {}; install the package ca-certificates and check the "
           "clock; if a proxy decrypts the traffic, set SSL_CERT_FILE to a file with its certificate",
           host, reason);
    case CURLE_OPERATION_TIMEDOUT:
      fail(Kind::timeout, "{} {} timed out: {}; check the network", request.method, host, reason);
    default:
      fail(Kind::interrupted, "{} {} failed: {}; check the network", request.method, host, reason);
  }
}

}  // namespace

const std::string* find_header(std::span<const Header> headers, std::string_view name) {
  const std::string wanted = lowered(name);
  for (const Header& header : headers)
    if (lowered(header.name) == wanted) return &header.value;
  return nullptr;
}

struct HttpClient::State {
  CURL* handle = curl().init();
  curl_slist* list = nullptr;
  std::array<char, CURL_ERROR_SIZE> details = {};

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    curl().cleanup(handle);
    curl().free_list(list);
  }

  template <typename Value>
  void set(CURLoption option, Value value) {
    if (curl().set(handle, option, value) != CURLE_OK)
      fail(Kind::library, "libcurl does not support option {}; install version 7.62 or later",
           static_cast<int>(option));
  }

  void set_headers(const HttpRequest& request, bool sends_secrets) {
    curl().free_list(std::exchange(list, nullptr));
    for (const Header& header : request.headers) {
      if (!sends_secrets && is_secret(header)) continue;
      const std::string line = fmt::format("{}: {}", header.name, header.value);
      if (std::ranges::any_of(line, [](char c) { return static_cast<unsigned char>(c) < ' '; }))
        fail(Kind::request, "the value of the HTTP header {} contains a control character; remove it",
             printable(header.name));
      list = curl().append(list, line.c_str());
    }
    // Disables the header Expect, because libcurl would wait a second for servers that ignore it.
    list = curl().append(list, "Expect:");
    if (find_header(request.headers, "Content-Type") == nullptr) list = curl().append(list, "Content-Type:");
    set(CURLOPT_HTTPHEADER, list);
  }

  void set_body(Transfer& transfer) {
    const HttpRequest& request = transfer.request;
    if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    if (request.method == "GET" || request.method == "HEAD") return;
    if (request.file.empty()) {
      set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
      set(CURLOPT_POSTFIELDS, request.body.c_str());
    } else {
      transfer.file = open(request.file.c_str(), O_RDONLY | O_CLOEXEC);
      if (transfer.file < 0) user_error("cannot read {}: {}", request.file.string(), std::strerror(errno));
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_READFUNCTION, &Transfer::on_read);
      set(CURLOPT_READDATA, static_cast<void*>(&transfer));
      set(CURLOPT_SEEKFUNCTION, &Transfer::on_seek);
      set(CURLOPT_SEEKDATA, static_cast<void*>(&transfer));
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.file_bytes));
    }
    set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
  }

  HttpResponse transfer(const HttpRequest& request, const Url& url, bool sends_secrets) {
    curl().reset(handle);
    Transfer transfer{.request = request};
    const std::string text = url.text();
    transfer.response.url = text;
    set(CURLOPT_URL, text.c_str());
    set(CURLOPT_USERAGENT, (std::string("hearth/") + kVersion).c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_ERRORBUFFER, details.data());
    set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout_seconds * 1000));
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(request.total_timeout_seconds * 1000));
    set(CURLOPT_LOW_SPEED_LIMIT, 1L);
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(request.stall_timeout_seconds));
    set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
    set(CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
    set(CURLOPT_WRITEFUNCTION, &Transfer::on_piece);
    set(CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
    if (request.on_progress) {
      set(CURLOPT_NOPROGRESS, 0L);
      set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
      set(CURLOPT_XFERINFODATA, static_cast<void*>(&transfer));
    }
    if (const char* const file = certificate_file()) set(CURLOPT_CAINFO, file);
    set_headers(request, sends_secrets);
    set_body(transfer);
    details[0] = '\0';
    const CURLcode code = curl().perform(handle);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (transfer.is_cancelled) fail(Kind::cancelled, "the request to {} was cancelled", url.origin());
    if (transfer.is_too_large)
      fail(Kind::too_large, "the response of {} exceeds the limit of {}; check the URL", url.origin(),
           human_bytes(request.max_body_bytes));
    if (code != CURLE_OK) fail_transfer(code, details.data(), url, request);
    return std::move(transfer.response);
  }
};

HttpClient::HttpClient() : state_(std::make_unique<State>()) {
  if (state_->handle == nullptr)
    fail(Kind::library, "libcurl could not be initialized; check the free memory");
}
HttpClient::~HttpClient() = default;

HttpResponse HttpClient::send(const HttpRequest& request) {
  Url url(request.url);
  if (!url.is_valid())
    fail(Kind::request, "'{}' is not a URL; use http://HOST/PATH or https://HOST/PATH", request.url);
  const std::string origin = url.origin();
  bool sends_secrets = true;
  HttpRequest current = request;
  for (int i = 0; i <= kMaxRedirects; ++i) {
    HttpResponse response = state_->transfer(current, url, sends_secrets);
    const std::string* const location = find_header(response.headers, "Location");
    if (response.status < 301 || response.status > 308 || location == nullptr ||
        request.redirects == Redirects::none)
      return response;
    const bool was_encrypted = url.is_encrypted();
    if (!url.follow(*location))
      fail(Kind::redirect,
           "{} redirects to '{}', which is not an http or https URL; check the address of the server", origin,
           *location);
    if (request.redirects == Redirects::same_host && url.origin() != origin) return response;
    if (was_encrypted && !url.is_encrypted())
      fail(Kind::redirect, "{} redirects to {}, which is not encrypted; use https", origin, url.origin());
    // After a redirect to another host, a redirect back to the first host does not get the secrets either.
    sends_secrets = sends_secrets && url.origin() == origin;
    const bool becomes_get = response.status == 303 || (response.status <= 302 && current.method == "POST");
    if (becomes_get && current.method != "HEAD") {
      current.method = "GET";
      current.body.clear();
    }
  }
  fail(Kind::redirect, "{} redirects more than {} times; check the address of the server", origin,
       kMaxRedirects);
}

std::string url_encoded(std::string_view text, bool keeps_slashes) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string encoded;
  for (const char c : text) {
    if (kPlain.find(c) != kPlain.npos || (keeps_slashes && c == '/'))
      encoded += c;
    else
      encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

std::string url_origin(const std::string& url) {
  const Url parsed(url);
  return parsed.is_valid() ? parsed.origin() : "";
}

}  // namespace hearth::net
