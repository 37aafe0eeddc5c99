#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/http_server.h"

namespace {

using namespace hearth::net;  // NOLINT

int start_server() {
  static HttpServer server({.head_timeout = std::chrono::milliseconds(500), .num_threads = 1});
  const auto echo = [](const Exchange& exchange) { exchange->reply({.body = exchange->request().body}); };
  server.on("POST", "/echo", echo);
  server.on("GET", "/*", echo);
  server.on("GET", "/stream", [](const Exchange& exchange) {
    exchange->begin_stream();
    exchange->write("data: 1\n\n");
    exchange->end_stream();
  });
  server.start();
  return server.port();
}

}  // namespace

/// Sends bytes to a server and reads its responses until it closes the connection.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int kPort = start_server();
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    parse_head(bytes);
  } catch (const HttpFault&) {
  }
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  // Each source address has a range of ports; a closed connection keeps its port for a minute.
  static uint32_t num_clients = 0;
  address.sin_port = 0;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + num_clients++ % 65536);
  if (bind(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) __builtin_trap();
  address.sin_port = htons(static_cast<uint16_t>(kPort));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) __builtin_trap();
  if (send(client, data, size, MSG_NOSIGNAL) >= 0 && shutdown(client, SHUT_WR) == 0) {
    char buffer[4096];
    while (recv(client, buffer, sizeof buffer, 0) > 0) continue;
  }
  close(client);
  return 0;
}
