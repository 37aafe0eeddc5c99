#include "ui/ui_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/run_files.h"
#include "io/run_lock.h"
#include "io/run_outputs.h"
#include "temporary_folder.h"

namespace hearth::ui {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kToken = "secret";
constexpr const char* kStep = "{\"current_steps\":2,\"total_steps\":9,\"loss\":0.5,\"elapsed_time\":1}\n";

/// A connection that sends one request.
class Request {
 public:
  Request(const std::string& url, std::string_view line, std::string_view headers)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval timeout = {.tv_sec = 60};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    const std::string text =
        fmt::format("{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}\r\n", line, headers);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        send(socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0)
      perror("request");
  }
  ~Request() { close(socket_); }
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  /// Reads until the text so far contains `part`, or to the end.
  std::string read_until(std::string_view part) {
    char bytes[4096];
    while (text_.find(part) == std::string::npos) {
      const ssize_t count = recv(socket_, bytes, sizeof bytes, 0);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      text_.append(bytes, static_cast<size_t>(count));
    }
    return text_;
  }

 private:
  int socket_;
  std::string text_;
};

class UiServerTest : public testing::Test {
 protected:
  UiServerTest() {
    write_file_atomically(folder_.path() / "secret.txt", "secret");
    fs::create_directories(run_ / "samples");
    write_file_atomically(run_ / kLogFile, kStep);
    write_file_atomically(run_ / kRunRecipe, "model:\n  name: \"<script>alert(1)</script>\"\n");
    write_file_atomically(run_ / "samples" / "step-000002-0.png", "image");
    fs::create_directory(run_ / kCheckpoints);
    fs::create_directory(run_ / kCheckpoints / "step-000000002");
  }

  void start(const std::string& program = "") {
    server_.emplace(folder_.path() / "runs", program, net::HttpServerOptions{.token = kToken});
    Request updates(server_->url(), "GET /api/updates", authorization());
    updates.read_until("\"state\"");
  }
  static std::string authorization() { return fmt::format("Authorization: Bearer {}\r\n", kToken); }
  /// Returns the response, from the status line to the end of the body.
  std::string answer(std::string_view line, const std::string& headers = authorization()) const {
    return Request(server_->url(), line, headers).read_until("\xff never");
  }
  std::string post(std::string_view path, std::string_view more = "") const {
    return answer(fmt::format("POST {}", path),
                  fmt::format("{}Content-Length: 0\r\n{}", authorization(), more));
  }

  const TemporaryFolder folder_;
  const fs::path run_ = folder_.path() / "runs" / "a";
  std::optional<UiServer> server_;
};

TEST_F(UiServerTest, AnswersWithTheTokenOnly) {
  start();
  for (const char* path : {"/", "/app.js", "/api/updates", "/api/run?run=a", "/api/curves?run=a"}) {
    EXPECT_THAT(answer(fmt::format("GET {}", path), ""), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(answer(fmt::format("GET {}", path), "Authorization: Bearer other\r\n"),
                StartsWith("HTTP/1.1 401"));
  }
  for (const char* path :
       {"/", "/app.js", "/dom.js", "/charts.js", "/views.js", "/style.css", "/shared.css", "/icon.svg"})
    EXPECT_THAT(answer(fmt::format("GET {}", path)), StartsWith("HTTP/1.1 200")) << path;
  const std::string page = answer("GET /");
  EXPECT_THAT(page, HasSubstr("Content-Security-Policy: default-src 'none'; script-src 'self'"));
  EXPECT_THAT(page, Not(HasSubstr("unsafe-inline")));
}

TEST_F(UiServerTest, SendsDataOfRunsAsJson) {
  start();
  EXPECT_THAT(answer("GET /api/curves?run=a"), HasSubstr("\"loss\":{\"steps\":[2],\"means\":[0.5]}"));
  EXPECT_THAT(answer("GET /api/run?run=a"), HasSubstr("[\"model.name\",\"<script>alert(1)</script>\"]"));
  EXPECT_THAT(answer("GET /api/run?run=a"), HasSubstr("Content-Type: application/json"));
  EXPECT_THAT(answer("GET /api/sample?run=a&step=2&name=0"), HasSubstr("Content-Type: image/png"));
  EXPECT_THAT(answer("GET /api/report?run=a"), StartsWith("HTTP/1.1 404"));
  write_file_atomically(run_ / io::kReportFile, "<script>alert(1)</script>");
  EXPECT_THAT(answer("GET /api/report?run=a"), HasSubstr("; sandbox; "));
}

TEST_F(UiServerTest, RefusesPathsOutsideOfRuns) {
  start();
  fs::create_symlink(folder_.path() / "secret.txt", run_ / "samples" / "step-000003-0.png");
  fs::create_symlink(folder_.path() / "secret.txt", run_ / io::kReportFile);
  for (const char* path : {"/api/run?run=..", "/api/run?run=a/..", "/api/run?run=%2e%2e%2fruns%2fa",
                           "/api/run?run=/etc", "/api/run?run=", "/api/curves?run=../runs/a",
                           "/api/sample?run=a&step=2&name=../../../secret", "/api/sample?run=a&step=3&name=0",
                           "/api/report?run=a", "/../secret.txt", "/api/sample?run=a&step=2&name=%00"}) {
    const std::string text = answer(fmt::format("GET {}", path));
    EXPECT_THAT(text, StartsWith("HTTP/1.1 40")) << path;
    EXPECT_THAT(text, Not(HasSubstr("\r\n\r\nsecret"))) << path;
  }
  for (const char* path : {"/api/run", "/api/curves?run=a&first=-1", "/api/curves?run=a&points=x"})
    EXPECT_THAT(answer(fmt::format("GET {}", path)), StartsWith("HTTP/1.1 400")) << path;
}

TEST_F(UiServerTest, RequestsAreForRunningRunsAndFromThisPage) {
  start();
  EXPECT_THAT(post("/api/stop?run=a"), StartsWith("HTTP/1.1 409"));
  const io::RunLock lock(run_, 0);
  server_.reset();
  start();
  EXPECT_THAT(post("/api/stop?run=a", "Origin: http://example.com\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(answer("GET /api/stop?run=a"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(post("/api/stop?run=.."), StartsWith("HTTP/1.1 404"));
  EXPECT_FALSE(fs::exists(run_ / ".request"));
  EXPECT_THAT(post("/api/checkpoint?run=a"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(read_file(run_ / ".request"), "checkpoint");
  EXPECT_THAT(post("/api/stop?run=a", "Origin: http://localhost\r\n"), StartsWith("HTTP/1.1 "));
  EXPECT_THAT(post("/api/continue?run=a"), StartsWith("HTTP/1.1 409"));
}

TEST_F(UiServerTest, SendsChangesWhileItIsOpen) {
  start();
  Request updates(server_->url(), "GET /api/updates", authorization());
  EXPECT_THAT(updates.read_until("\"step\":2"), HasSubstr("Content-Type: text/event-stream"));
  std::ofstream(run_ / kLogFile, std::ios::app) << "{\"current_steps\":3,\"total_steps\":9,\"loss\":0.25}\n";
  fs::create_directory(folder_.path() / "runs" / "b");
  write_file_atomically(folder_.path() / "runs" / "b" / kLogFile, kStep);
  EXPECT_THAT(updates.read_until("\"name\":\"b\""), HasSubstr("\"step\":3"));
  fs::remove_all(folder_.path() / "runs" / "b");
  EXPECT_THAT(updates.read_until("\"removed\":[\"b\"]"), HasSubstr("\"removed\":[\"b\"]"));
}

TEST_F(UiServerTest, ContinuesARunAndReportsAFailure) {
  const fs::path program = folder_.path() / "program";
  write_file_atomically(program, "#!/bin/sh\necho \"$@\"\necho no such model\nexit 2\n");
  fs::permissions(program, fs::perms::owner_all);
  start(program.string());
  Request updates(server_->url(), "GET /api/updates", authorization());
  updates.read_until("\"state\"");
  EXPECT_THAT(post("/api/continue?run=a"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(updates.read_until("event: message\ndata: {\"text\":\"a: no such model\"}"),
              HasSubstr("a: no such model"));
  EXPECT_EQ(read_file(run_ / "resume.log"), fmt::format("resume {}\nno such model\n", run_.string()));
}

}  // namespace
}  // namespace hearth::ui
