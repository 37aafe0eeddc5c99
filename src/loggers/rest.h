#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/path.h"
#include "loggers/logger.h"
#include "net/http_client.h"

namespace hearth::loggers {

/// Sends HTTP requests of a logger to one server. They end if Logger::is_cancelled() returns true.
class RestClient {
 public:
  /// `url`: prefix of all URLs, without / at the end. `headers`: headers of all requests.
  RestClient(const Logger& logger, std::string url, std::vector<net::Header> headers = {});

  /// Sends a request with a JSON body, or without one if `body` is null. Returns the response, with any
  /// status.
  net::HttpResponse send(const char* method, const std::string& path, const nlohmann::json& body);
  /// Sends a request and returns the JSON object of the response. Throws a UserError with the server's
  /// message if the status is not a success, and a UserError if the body is not a JSON object.
  nlohmann::json call(const char* method, const std::string& path, const nlohmann::json& body);
  /// Uploads a file, or `body` if `file` is empty, with PUT. Throws a UserError if the status is not a
  /// success.
  void put(const std::string& path, const fs::path& file, const std::string& body = "");

  /// Throws a UserError with the server's message if the status is not a success.
  void check(const net::HttpResponse& response) const;

 private:
  net::HttpResponse send(net::HttpRequest request);

  const Logger& logger_;
  std::string url_;
  std::vector<net::Header> headers_;
  net::HttpClient client_;
};

}  // namespace hearth::loggers
