#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/path.h"
#include "loggers/logger.h"
#include "net/http_client.h"

namespace hearth::loggers {

/// HTTP requests of a logger to one server, which end when the logger is cancelled.
class RestClient {
 public:
  /// `url`: start of all URLs, without / at the end; `headers`: headers of all requests.
  RestClient(const Logger& logger, std::string url, std::vector<net::Header> headers = {});

  /// Sends a request with a JSON body (none if it is null) and returns the response, whatever its status.
  net::HttpResponse send(const char* method, const std::string& path, const nlohmann::json& body);
  /// Sends a request and returns the JSON object of the response. UserError with the server's message if the
  /// status is no success, or the body is no JSON object.
  nlohmann::json call(const char* method, const std::string& path, const nlohmann::json& body);
  /// Uploads a file, or `body` if `file` is empty, with PUT. UserError if the status is no success.
  void put(const std::string& path, const fs::path& file, const std::string& body = "");

  /// Throws a UserError with the server's message if the status is no success.
  void check(const net::HttpResponse& response) const;

 private:
  net::HttpResponse send(net::HttpRequest request);

  const Logger& logger_;
  std::string url_;
  std::vector<net::Header> headers_;
  net::HttpClient client_;
};

}  // namespace hearth::loggers
