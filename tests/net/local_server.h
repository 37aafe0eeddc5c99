#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hearth {

/// An HTTP server at 127.0.0.1 for tests, with one connection at a time, which is closed after each response.
class LocalServer {
 public:
  /// Returns the bytes of the response to a request (head and body, as received).
  using Respond = std::function<std::string(const std::string& request)>;

  explicit LocalServer(Respond respond) : respond_(std::move(respond)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~LocalServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  std::string url(const std::string& path = "/") const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  static std::string read_request(int connection) {
    std::string text;
    char buffer[4096];
    size_t needed = std::string::npos;
    while (text.size() < needed) {
      const ssize_t num = recv(connection, buffer, sizeof(buffer), 0);
      if (num <= 0) break;
      text.append(buffer, static_cast<size_t>(num));
      const size_t end = text.find("\r\n\r\n");
      if (needed != std::string::npos || end == std::string::npos) continue;
      const size_t length = text.find("Content-Length: ");
      needed = end + 4 + (length < end ? std::stoul(text.substr(length + 16)) : 0);
    }
    return text;
  }
  void serve() {
    for (int connection; (connection = accept(listener_, nullptr, nullptr)) >= 0; close(connection)) {
      const std::string request = read_request(connection);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string response = respond_(request);
      (void)!send(connection, response.data(), response.size(), MSG_NOSIGNAL);
    }
  }

  Respond respond_;
  int listener_ = -1;
  int port_ = 0;
  std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

/// Returns a complete HTTP response.
inline std::string http_response(const std::string& status, const std::string& headers = "",
                                 const std::string& body = "") {
  return "HTTP/1.1 " + status + "\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

}  // namespace hearth
