#include "net/http_message.h"

#include <gmock/gmock.h>

namespace hearth::net {
namespace {

int status_of(const std::string& head) {
  try {
    parse_head(head);
  } catch (const HttpFault& fault) {
    return fault.status;
  }
  return 200;
}

TEST(HttpMessage, ParsesARequest) {
  const HttpHead head = parse_head(
      "POST /a%20b?x=1%262&y=+z&flag HTTP/1.1\r\nHost: localhost:80\r\nCookie: a=1; hearth=xyz\r\n"
      "Content-Length: 12\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(head.request.method, "POST");
  EXPECT_EQ(head.request.path, "/a b");
  EXPECT_EQ(*head.request.query_value("x"), "1&2");
  EXPECT_EQ(*head.request.query_value("y"), " z");
  EXPECT_EQ(*head.request.query_value("flag"), "");
  EXPECT_EQ(head.request.query_value("none"), nullptr);
  EXPECT_EQ(*head.request.header("host"), "localhost:80");
  EXPECT_EQ(head.request.cookie("hearth"), "xyz");
  EXPECT_EQ(head.request.cookie("earth"), "");
  EXPECT_EQ(head.body_bytes, 12u);
  EXPECT_FALSE(head.request.keep_alive);
}

TEST(HttpMessage, RefusesAmbiguousBodies) {
  const std::string start = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status_of(start + "Content-Length: 1\r\n\r\n"), 200);
  EXPECT_EQ(status_of(start + "Content-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
  EXPECT_EQ(status_of(start + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
  EXPECT_EQ(status_of(start + "Transfer-Encoding: chunked\r\n\r\n"), 411);
  for (const char* length : {"-1", "+1", "1,1", "0x1", "", "99999999999999999999"})
    EXPECT_EQ(status_of(start + "Content-Length: " + length + "\r\n\r\n"), 400) << length;
}

TEST(HttpMessage, RefusesBrokenHeads) {
  for (const std::string head :
       {"GET /\r\nHost: a\r\n\r\n", "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", "GET /%0d%0aX: HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%4 HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n\r\n"})
    EXPECT_EQ(status_of(head), 400) << head;
  std::string many = "GET / HTTP/1.1\r\nHost: a\r\n";
  for (size_t i = 0; i < kMaxRequestHeaders; ++i) many += "X: y\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
}

}  // namespace
}  // namespace hearth::net
