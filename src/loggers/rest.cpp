#include "loggers/rest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::loggers {
namespace {

/// Returns the message in the body of an error response, as one short line.
std::string message_of(const net::HttpResponse& response) {
  const auto body = parse_json<nlohmann::json>(response.body);
  const bool has_message =
      body && body->is_object() && body->contains("message") && body->at("message").is_string();
  return shortened(has_message ? body->at("message").get<std::string>() : response.body, 200);
}

}  // namespace

RestClient::RestClient(const Logger& logger, std::string url, std::vector<net::Header> headers)
    : logger_(logger), url_(std::move(url)), headers_(std::move(headers)) {}

net::HttpResponse RestClient::send(net::HttpRequest request) {
  request.headers.insert(request.headers.end(), headers_.begin(), headers_.end());
  request.redirects = net::Redirects::same_host;
  request.connect_timeout_seconds = 10;
  request.stall_timeout_seconds = 15;
  request.max_body_bytes = 16 << 20;
  request.on_progress = [&](int64_t, int64_t) { return !logger_.is_cancelled(); };
  return client_.send(request);
}

net::HttpResponse RestClient::send(const char* method, const std::string& path, const nlohmann::json& body) {
  net::HttpRequest request{.method = method, .url = url_ + path};
  if (!body.is_null()) {
    request.headers.push_back({"Content-Type", "application/json"});
    request.body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return send(std::move(request));
}

nlohmann::json RestClient::call(const char* method, const std::string& path, const nlohmann::json& body) {
  const net::HttpResponse response = send(method, path, body);
  check(response);
  return parse_json_object<nlohmann::json>(response.body, "the response of " + net::url_origin(url_));
}

void RestClient::put(const std::string& path, const fs::path& file, const std::string& body) {
  net::HttpRequest request{.method = "PUT", .url = url_ + path, .body = body};
  request.headers.push_back({"Content-Type", "application/octet-stream"});
  if (!file.empty()) {
    request.file = file;
    request.file_bytes = static_cast<int64_t>(fs::file_size(file));
  }
  check(send(std::move(request)));
}

void RestClient::check(const net::HttpResponse& response) const {
  if (response.is_success()) return;
  const std::string message = message_of(response);
  user_error("{} answered with HTTP status {}{}{}", net::url_origin(url_), response.status,
             message.empty() ? "" : ": ", message);
}

}  // namespace hearth::loggers
