#include "net/http_client.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>

#include "local_server.h"
#include "temporary_folder.h"

namespace hearth::net {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Returns the error of a request; fails if there is none.
HttpError error_of(const HttpRequest& request) {
  try {
    HttpClient().send(request);
  } catch (const HttpError& error) {
    return error;
  }
  ADD_FAILURE() << "expected an error";
  return {HttpError::Kind::request, ""};
}

TEST(HttpClient, SendsHeadersAndReturnsTheResponse) {
  LocalServer server(
      [](const std::string&) { return http_response("404 Not Found", "X-Extra: 7\r\n", "gone"); });
  const HttpResponse response =
      HttpClient().send({.url = server.url("/a/b?c=d"), .headers = {{"Range", "bytes=3-"}}});
  EXPECT_EQ(response.status, 404);
  EXPECT_EQ(response.body, "gone");
  EXPECT_EQ(*find_header(response.headers, "x-EXTRA"), "7");
  EXPECT_EQ(find_header(response.headers, "ETag"), nullptr);
  EXPECT_THAT(server.requests().at(0), StartsWith("GET /a/b?c=d HTTP/1.1\r\n"));
  EXPECT_THAT(server.requests().at(0), HasSubstr("\r\nRange: bytes=3-\r\n"));
}

TEST(HttpClient, HeadHasNoBody) {
  LocalServer server([](const std::string&) { return "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"; });
  const HttpResponse response = HttpClient().send({.method = "HEAD", .url = server.url()});
  EXPECT_EQ(*find_header(response.headers, "Content-Length"), "99");
  EXPECT_EQ(response.body, "");
}

TEST(HttpClient, SendsBodies) {
  LocalServer server([](const std::string&) { return http_response("200 OK"); });
  HttpClient client;
  client.send({.method = "POST",
               .url = server.url(),
               .headers = {{"Content-Type", "application/json"}},
               .body = std::string("{\"a\": \0}", 8)});
  EXPECT_THAT(server.requests().at(0), HasSubstr("\r\nContent-Type: application/json\r\n"));
  EXPECT_THAT(server.requests().at(0), testing::EndsWith(std::string("\r\n\r\n{\"a\": \0}", 12)));

  const TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "0123456789";
  client.send({.method = "PUT",
               .url = server.url(),
               .file = folder.path() / "file",
               .file_offset = 2,
               .file_bytes = 5});
  EXPECT_THAT(server.requests().at(1), StartsWith("PUT / HTTP/1.1\r\n"));
  EXPECT_THAT(server.requests().at(1), testing::EndsWith("\r\n\r\n23456"));
}

TEST(HttpClient, OtherHostsGetNoAuthorization) {
  LocalServer other([](const std::string&) { return http_response("200 OK", "", "weights"); });
  LocalServer server([&](const std::string& request) {
    if (request.starts_with("GET /first")) return http_response("302 Found", "Location: /second\r\n");
    return http_response("302 Found", "Location: " + other.url("/far") + "\r\n");
  });
  const HttpRequest request = {.url = server.url("/first"),
                               .headers = {{"authorization", "Bearer SECRET"}, {"X-Kept", "1"}}};
  const HttpResponse response = HttpClient().send(request);
  EXPECT_EQ(response.body, "weights");
  EXPECT_EQ(response.url, other.url("/far"));
  EXPECT_THAT(server.requests().at(1), HasSubstr("SECRET"));
  EXPECT_THAT(other.requests().at(0), Not(HasSubstr("SECRET")));
  EXPECT_THAT(other.requests().at(0), HasSubstr("X-Kept: 1"));

  HttpRequest limited = request;
  limited.redirects = Redirects::same_host;
  EXPECT_EQ(HttpClient().send(limited).status, 302);
  EXPECT_EQ(other.requests().size(), 1);
}

TEST(HttpClient, RedirectsAreBounded) {
  LocalServer loop([](const std::string&) { return http_response("302 Found", "Location: /again\r\n"); });
  EXPECT_EQ(error_of({.url = loop.url()}).kind(), HttpError::Kind::redirect);
  LocalServer file(
      [](const std::string&) { return http_response("302 Found", "Location: file:///etc/passwd\r\n"); });
  EXPECT_THAT(error_of({.url = file.url()}).what(),
              HasSubstr("'file:///etc/passwd', which is not an http or https URL"));
}

TEST(HttpClient, StreamsSuccessfulBodiesOnly) {
  std::string status = "206 Partial Content";
  LocalServer server([&](const std::string&) { return http_response(status, "", "piece"); });
  std::string streamed;
  const HttpRequest request = {.url = server.url(),
                               .on_body = [&](const HttpResponse& head, std::span<const std::byte> piece) {
                                 EXPECT_EQ(head.status, 206);
                                 streamed.append(reinterpret_cast<const char*>(piece.data()), piece.size());
                               }};
  EXPECT_EQ(HttpClient().send(request).body, "");
  EXPECT_EQ(streamed, "piece");
  status = "500 Internal Server Error";
  EXPECT_EQ(HttpClient().send(request).body, "piece");
  EXPECT_EQ(streamed, "piece");
}

TEST(HttpClient, PassesOnExceptionsOfCallbacks) {
  LocalServer server([&](const std::string&) { return http_response("200 OK", "", "piece"); });
  EXPECT_THROW(
      HttpClient().send({.url = server.url(),
                         .on_body = [](const HttpResponse&,
                                       std::span<const std::byte>) { throw std::length_error("full"); }}),
      std::length_error);
  EXPECT_EQ(error_of({.url = server.url(), .on_progress = [](int64_t, int64_t) { return false; }}).kind(),
            HttpError::Kind::cancelled);
}

TEST(HttpClient, LimitsTheBody) {
  LocalServer server([&](const std::string&) { return http_response("200 OK", "", std::string(5000, 'x')); });
  EXPECT_EQ(error_of({.url = server.url(), .max_body_bytes = 4999}).kind(), HttpError::Kind::too_large);
  EXPECT_EQ(HttpClient().send({.url = server.url(), .max_body_bytes = 5000}).body.size(), 5000);
}

TEST(HttpClient, ExplainsFailures) {
  const HttpError refused = error_of({.url = "http://127.0.0.1:1/"});
  EXPECT_EQ(refused.kind(), HttpError::Kind::unreachable);
  EXPECT_TRUE(refused.is_temporary());
  EXPECT_THAT(refused.what(), HasSubstr("https_proxy"));
  EXPECT_EQ(error_of({.url = "ftp://127.0.0.1/"}).kind(), HttpError::Kind::request);
  EXPECT_EQ(error_of({.url = "http://a b/"}).kind(), HttpError::Kind::request);
  EXPECT_EQ(error_of({.url = "http://127.0.0.1:1/", .headers = {{"A", "b\r\nC: d"}}}).kind(),
            HttpError::Kind::request);
  LocalServer cut([](const std::string&) { return "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"; });
  const HttpError interrupted = error_of({.url = cut.url()});
  EXPECT_EQ(interrupted.kind(), HttpError::Kind::interrupted);
  EXPECT_TRUE(interrupted.is_temporary());
}

TEST(HttpClient, DetectsStalledTransfers) {
  bool ends = false;
  std::mutex mutex;
  LocalServer server([&](const std::string&) {
    for (int i = 0; i < 400; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(25));
      const std::lock_guard lock(mutex);
      if (ends) break;
    }
    return http_response("200 OK");
  });
  EXPECT_EQ(error_of({.url = server.url(), .stall_timeout_seconds = 1}).kind(), HttpError::Kind::timeout);
  const std::lock_guard lock(mutex);
  ends = true;
}

TEST(HttpClient, UsesTheProxyVariable) {
  LocalServer proxy([](const std::string&) { return http_response("200 OK", "", "by proxy"); });
  setenv("http_proxy", proxy.url().c_str(), 1);
  const HttpResponse response = HttpClient().send({.url = "http://hub.invalid/file"});
  unsetenv("http_proxy");
  EXPECT_EQ(response.body, "by proxy");
  EXPECT_THAT(proxy.requests().at(0), StartsWith("GET http://hub.invalid/file HTTP/1.1\r\n"));
}

TEST(Url, EncodesAndComparesParts) {
  EXPECT_EQ(url_encoded("a/b c\xc3\xa9?#%"), "a%2Fb%20c%C3%A9%3F%23%25");
  EXPECT_EQ(url_encoded("a/b c", true), "a/b%20c");
  EXPECT_EQ(url_origin("HTTPS://Example.com/x"), "https://example.com:443");
  EXPECT_EQ(url_origin("http://example.com:8000"), "http://example.com:8000");
  EXPECT_EQ(url_origin("file:///etc/passwd"), "");
}

}  // namespace
}  // namespace hearth::net
