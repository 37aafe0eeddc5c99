#include "net/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <optional>
#include <thread>

#include "base/error.h"

namespace hearth::net {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr std::string_view kGet = "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n";
constexpr milliseconds kPatience = std::chrono::seconds(60);

class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) perror("connect");
    const timeval timeout = {.tv_sec = 60};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  }
  ~Client() { leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  Client& send(std::string_view text) {
    [[maybe_unused]] const ssize_t count = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
    return *this;
  }
  /// Reads until `end` or the end of the connection.
  std::string read_until(std::string_view end) {
    std::string text;
    char c = 0;
    while (!text.ends_with(end) && recv(socket_, &c, 1, 0) == 1) text += c;
    return text;
  }
  std::string read_all() { return read_until("\xff never"); }
  void leave() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }
  bool is_open() {
    char c = 0;
    return recv(socket_, &c, 1, MSG_DONTWAIT | MSG_PEEK) != 0;
  }

 private:
  int socket_;
};

class HttpServerTest : public testing::Test {
 protected:
  void open(HttpServerOptions options = {}) {
    server_.emplace(std::move(options));
    server_->on("GET", "/hello", [](const Exchange& exchange) { exchange->reply({.body = "hello"}); });
    server_->on("POST", "/echo",
                [](const Exchange& exchange) { exchange->reply({.body = exchange->request().body}); });
    server_->on("GET", "/wrong", [](const Exchange&) { user_error("it is {}", "wrong"); });
    server_->on("GET", "/silent", [](const Exchange&) {});
    server_->on(
        "GET", "/open", [](const Exchange& exchange) { exchange->reply({.body = "all"}); },
        HttpServer::Access::open);
    server_->on("GET", "/under/*", [](const Exchange& exchange) { exchange->reply({.body = "prefix"}); });
    const auto hold = [this](const Exchange& exchange) {
      const std::lock_guard lock(mutex_);
      held_.push_back(exchange);
      changed_.notify_all();
    };
    server_->on("GET", "/hold", hold);
    server_->on("POST", "/hold", hold);
    server_->start();
  }
  /// Waits for the exchange of the next request for /hold.
  Exchange held() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [&] { return !held_.empty(); });
    Exchange exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }
  std::string ask(std::string_view request) { return Client(server_->port()).send(request).read_all(); }
  static std::string closing(std::string_view line, std::string_view headers = "") {
    return fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n", line, headers);
  }

  std::optional<HttpServer> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Exchange> held_;
};

TEST_F(HttpServerTest, AnswersRequestsOfOneConnectionInOrder) {
  open();
  Client client(server_->port());
  client.send(std::string(kGet) + "POST /echo HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 4\r\n\r\nbo");
  EXPECT_THAT(client.read_until("hello"), StartsWith("HTTP/1.1 200 OK\r\n"));
  client.send("dy");
  EXPECT_THAT(client.read_until("body"), HasSubstr("Content-Length: 4\r\n"));
  client.send("HEAD /hello HTTP/1.1\r\nHost: [::1]\r\n\r\n");
  EXPECT_THAT(client.read_until("\r\n\r\n"), HasSubstr("Content-Length: 5\r\n"));
  client.send("GET /under/the/sea HTTP/1.0\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.read_all(), testing::EndsWith("\r\n\r\nprefix"));
}

TEST_F(HttpServerTest, FaultsHaveStatusCodes) {
  open({.max_body_bytes = 10});
  EXPECT_THAT(ask(closing("GET /none")), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(ask(closing("DELETE /hello")), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(ask(closing("GET /wrong")), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("it is wrong")));
  EXPECT_THAT(ask(closing("GET /silent")), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(ask("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(closing("POST /echo", "Content-Length: 11\r\n")), StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(ask("GET /" + std::string(40 << 10, 'a')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(HttpServerTest, ChecksTheToken) {
  open({.token = "secret"});
  EXPECT_THAT(ask(closing("GET /hello")), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(closing("GET /none")), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(closing("GET /open")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(closing("GET /hello", "Authorization: Bearer secre\r\n")), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(closing("GET /hello", "Authorization: bearer secret\r\n")), StartsWith("HTTP/1.1 200 "));
  const std::string cookie = fmt::format("hearth_{}=secret", server_->port());
  EXPECT_THAT(ask(closing("GET /hello?token=secret")),
              AllOf(StartsWith("HTTP/1.1 303 "), HasSubstr("Set-Cookie: " + cookie + "; Path=/; HttpOnly")));
  EXPECT_THAT(ask(closing("GET /hello?token=secrets")), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(ask(closing("GET /hello", "Cookie: " + cookie + "\r\n")), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, RefusesOtherSites) {
  open({.allowed_hosts = {"my.host"}});
  for (const auto& [host, status] : std::map<std::string, int>{{"evil.com", 403},
                                                               {"127.0.0.1.evil.com:80", 403},
                                                               {"localhost.evil.com", 403},
                                                               {"192.168.1.7:8080", 200},
                                                               {"LOCALHOST:8080", 200},
                                                               {"[::1]:8080", 200},
                                                               {"my.host", 200}}) {
    const std::string request = "GET /hello HTTP/1.1\r\nConnection: close\r\nHost: " + host + "\r\n\r\n";
    EXPECT_THAT(ask(request), StartsWith(fmt::format("HTTP/1.1 {} ", status))) << host;
  }
  const std::string post = "Content-Length: 0\r\n";
  EXPECT_THAT(ask(closing("POST /echo", post + "Origin: http://localhost\r\n")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(closing("POST /echo", post + "Origin: http://evil.com\r\n")), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask(closing("POST /echo", post + "Origin: null\r\n")), StartsWith("HTTP/1.1 403 "));
}

TEST_F(HttpServerTest, StreamsAndSeesClientsLeave) {
  open();
  Client client(server_->port());
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange exchange = held();
  exchange->begin_stream();
  EXPECT_TRUE(exchange->write("data: 1\n\n"));
  EXPECT_THAT(client.read_until("9\r\ndata: 1\n\n\r\n"), HasSubstr("Transfer-Encoding: chunked\r\n"));
  exchange->end_stream();
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "0\r\n\r\n");
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange second = held();
  second->begin_stream();
  EXPECT_TRUE(second->is_open());
  client.leave();
  while (second->write("data: 2\n\n")) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(second->is_open());
}

TEST_F(HttpServerTest, EndsStreamsThatNobodyReads) {
  open({.write_timeout = milliseconds(300)});
  Client client(server_->port());
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange exchange = held();
  exchange->begin_stream("text/plain");
  const std::string megabyte(1 << 20, 'x');
  size_t count = 0;
  while (exchange->write(megabyte)) ++count;
  EXPECT_LT(count, 64u);
}

/// The pauses let the server's thread take what is written, so that a limit on untaken bytes alone never ends
/// the stream.
TEST_F(HttpServerTest, LimitsTheMemoryOfStreamsThatNobodyReads) {
  open();
  Client client(server_->port());
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange exchange = held();
  exchange->begin_stream("text/plain");
  const std::string part(1 << 18, 'x');
  int count = 0;
  for (; count < 256 && exchange->write(part); ++count) std::this_thread::sleep_for(milliseconds(2));
  EXPECT_LT(count, 256);
}

TEST_F(HttpServerTest, SlowAndIdleClientsBlockNobody) {
  open({.num_threads = 1});
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 1000; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    if (i % 2 == 0) clients.back()->send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Len");
  }
  EXPECT_THAT(ask(closing("GET /hello")), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(clients[0]->send("gth: 2\r\n\r\nok").read_until("ok"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClosesSlowAndIdleConnections) {
  open({.request_timeout = milliseconds(400),
        .head_timeout = milliseconds(200),
        .idle_timeout = milliseconds(200)});
  EXPECT_EQ(Client(server_->port()).read_all(), "");
  EXPECT_THAT(Client(server_->port()).send("GET /hel").read_all(), StartsWith("HTTP/1.1 408 "));
  Client body(server_->port());
  body.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1");
  EXPECT_THAT(body.read_all(), StartsWith("HTTP/1.1 408 "));
}

TEST_F(HttpServerTest, ClosesTheLongestIdleConnectionAtTheLimit) {
  open({.max_connections = 2});
  Client first(server_->port()), second(server_->port());
  EXPECT_THAT(first.send(kGet).read_until("hello"), HasSubstr("200 OK"));
  EXPECT_THAT(second.send(kGet).read_until("hello"), HasSubstr("200 OK"));
  EXPECT_THAT(ask(closing("GET /hello")), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(first.read_all(), "");
  EXPECT_TRUE(second.is_open());
}

TEST_F(HttpServerTest, LimitsTheMemoryOfRequests) {
  open({.max_body_bytes = 1 << 20, .max_buffered_bytes = 1 << 20});
  const std::string body(700'000, 'x');
  const auto post = [&](const char* path) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path,
                       body.size(), body);
  };
  Client first(server_->port());
  first.send(post("/hold"));
  held().reset();
  EXPECT_THAT(first.read_until("}}"), StartsWith("HTTP/1.1 500 "));
  first.send(post("/hold"));
  Exchange exchange = held();
  EXPECT_THAT(ask(post("/echo")), StartsWith("HTTP/1.1 503 "));
  exchange->reply({.body = "held"});
  exchange.reset();
  EXPECT_THAT(first.read_until("held"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(first.send(post("/echo")).read_until("xxx"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, SendsContinue) {
  open();
  Client client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_THAT(client.send("hi").read_until("hi"), StartsWith("HTTP/1.1 200 OK"));
}

TEST_F(HttpServerTest, StopFinishesRunningExchanges) {
  open();
  Client client(server_->port()), idle(server_->port());
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange exchange = held();
  std::thread stopping([&] { server_->stop(kPatience); });
  EXPECT_EQ(idle.read_all(), "");
  exchange->reply({.body = "late"});
  EXPECT_THAT(client.read_all(), testing::EndsWith("late"));
  stopping.join();
}

TEST_F(HttpServerTest, StopClosesTheRestAfterItsGrace) {
  open();
  Client client(server_->port());
  client.send("GET /hold HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const Exchange exchange = held();
  server_->stop(milliseconds(100));
  EXPECT_FALSE(exchange->is_open());
  EXPECT_EQ(client.read_all(), "");
}

TEST_F(HttpServerTest, ServesFilesWithAContentPolicy) {
  server_.emplace(HttpServerOptions{});
  const StaticFile files[] = {{"/page.html", "<p>"}};
  server_->add_files(files);
  server_->start();
  EXPECT_THAT(
      ask(closing("GET /page.html")),
      AllOf(HasSubstr("Content-Type: text/html"), HasSubstr("Content-Security-Policy: default-src 'none'")));
}

TEST_F(HttpServerTest, PortsInUseAreUserErrors) {
  open();
  EXPECT_THAT([&] { HttpServer({.port = server_->port()}); },
              testing::ThrowsMessage<UserError>(HasSubstr("is in use")));
  EXPECT_THAT([&] { HttpServer({.host = "no such host"}); }, testing::Throws<UserError>());
}

TEST(StopSignals, WaitForASignal) {
  StopSignals signals;
  kill(getpid(), SIGTERM);
  signals.wait();
}

TEST(RandomToken, IsNew) { EXPECT_NE(random_token(), random_token()); }

}  // namespace
}  // namespace hearth::net
