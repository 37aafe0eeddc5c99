#include "net/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace hearth::net {
namespace {

/// Returns the name or address in "name:port" or "[address]:port".
std::string host_name(std::string_view authority) {
  if (authority.starts_with('[')) return std::string(authority.substr(1, authority.find(']') - 1));
  return lowered(authority.substr(0, authority.find(':')));
}

bool is_ip_address(const std::string& name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 || inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

/// Compares two texts in a time that does not depend on the position of the first difference (timing
/// attacks).
bool equals_secret(std::string_view text, std::string_view secret) {
  unsigned difference = text.size() != secret.size();
  for (size_t i = 0; i < std::min(text.size(), secret.size()); ++i)
    difference |= static_cast<unsigned char>(text[i]) ^ static_cast<unsigned char>(secret[i]);
  return difference == 0;
}

}  // namespace

std::optional<HttpReply> refuse_other_sites(const ServerRequest& request, std::string_view host,
                                            std::span<const std::string> allowed_hosts) {
  const std::string* authority = request.header("host");
  const std::string name = authority == nullptr ? "" : host_name(*authority);
  if (!is_ip_address(name) && name != "localhost" && name != lowered(host) &&
      std::ranges::find(allowed_hosts, name) == allowed_hosts.end())
    return error_reply(
        403,
        fmt::format("the host name '{}' (header Host) is not allowed; use an IP address or localhost", name));
  if (request.method == "GET" || request.method == "HEAD") return std::nullopt;
  const std::string* origin = request.header("origin");
  if (origin == nullptr || *origin == "http://" + *authority || *origin == "https://" + *authority)
    return std::nullopt;
  return error_reply(403,
                     "the request comes from another web site (header Origin), which is not allowed; send it "
                     "from a page of this server");
}

std::optional<HttpReply> refuse_without_token(const ServerRequest& request, std::string_view token,
                                              const std::string& cookie_name) {
  if (token.empty()) return std::nullopt;
  const std::string* header = request.header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (header != nullptr && lowered(header->substr(0, kScheme.size())) == kScheme &&
      equals_secret(trimmed(std::string_view(*header).substr(kScheme.size())), token))
    return std::nullopt;
  if (equals_secret(request.cookie(cookie_name), token)) return std::nullopt;
  const std::string* in_query = request.query_value("token");
  if (in_query != nullptr && request.method == "GET" && equals_secret(*in_query, token)) {
    const std::string cookie = fmt::format("{}={}; Path=/; HttpOnly; SameSite=Lax", cookie_name, token);
    return HttpReply{.status = 303,
                     .type = "text/plain",
                     .headers = {{"Location", request.path == "/" ? "/" : "?"}, {"Set-Cookie", cookie}}};
  }
  return error_reply(
      401,
      "the API key is missing or wrong; send the header 'Authorization: Bearer KEY', or open the "
      "URL that Hearth printed when it started");
}

}  // namespace hearth::net
