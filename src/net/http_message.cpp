#include "net/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"

namespace hearth::net {
namespace {

bool is_token(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos);
  };
  return !text.empty() && std::ranges::all_of(text, allowed);
}

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Removes and returns the text before `separator`, which is removed too; all text if there is no separator.
std::string_view take_until(std::string_view& text, std::string_view separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + separator.size());
  return part;
}

void parse_target(std::string_view target, ServerRequest& request) {
  std::string_view query = target;
  const std::string_view path = take_until(query, "?");
  const auto decoded = percent_decoded(path, false);
  if (!path.starts_with('/') || !decoded)
    throw HttpFault{400,
                    "the path of the request is invalid; it must start with /, with valid %XX escapes and "
                    "without control characters"};
  request.path = *decoded;
  while (!query.empty()) {
    std::string_view value = take_until(query, "&");
    const auto name = percent_decoded(take_until(value, "="), true),
               decoded_value = percent_decoded(value, true);
    if (!name || !decoded_value)
      throw HttpFault{400,
                      "the query of the request is invalid; use valid %XX escapes and no control characters"};
    request.query.emplace_back(*name, *decoded_value);
  }
}

void parse_request_line(std::string_view line, ServerRequest& request) {
  request.method = take_until(line, " ");
  const std::string_view target = take_until(line, " ");
  if (!is_token(request.method) || (line != "HTTP/1.1" && line != "HTTP/1.0"))
    throw HttpFault{400, "the request line is invalid; send METHOD PATH HTTP/1.1"};
  request.is_http10 = line == "HTTP/1.0";
  parse_target(target, request);
}

void parse_header(std::string_view line, ServerRequest& request) {
  std::string_view value = line;
  const std::string_view name = take_until(value, ":");
  if (!is_token(name) || name.size() == line.size())
    throw HttpFault{400, "a header is invalid; send headers as NAME: VALUE"};
  value = trimmed(value);
  if (std::ranges::any_of(value, [](char c) { return is_control(c) && c != '\t'; }))
    throw HttpFault{400, fmt::format("the header {} contains a control character; remove it", name)};
  if (request.headers.size() == kMaxRequestHeaders)
    throw HttpFault{431, fmt::format("the request has more than {} headers; send fewer", kMaxRequestHeaders)};
  request.headers.emplace_back(lowered(name), value);
}

/// Returns the value of a header that must occur at most once; nullptr if it is missing.
const std::string* unique_header(const ServerRequest& request, std::string_view name) {
  if (std::ranges::count(request.headers, name, &NamedValues::value_type::first) > 1)
    throw HttpFault{400, fmt::format("the header {} occurs more than once; send it once", name)};
  return request.header(name);
}

/// Returns the size of the body. Throws an HttpFault if the headers do not state it clearly.
size_t body_bytes_of(const ServerRequest& request) {
  const std::string* length = unique_header(request, "content-length");
  if (request.header("transfer-encoding") != nullptr) {
    if (length != nullptr)
      throw HttpFault{400, "the request has Content-Length and Transfer-Encoding; send only Content-Length"};
    throw HttpFault{411, "chunked bodies are not supported; send Content-Length"};
  }
  if (length == nullptr) return 0;
  size_t bytes = 0;
  const auto [end, error] = std::from_chars(length->data(), length->data() + length->size(), bytes);
  if (error != std::errc() || end != length->data() + length->size())
    throw HttpFault{400,
                    "the header Content-Length is not a number; set it to the number of bytes of the body"};
  return bytes;
}

}  // namespace

const std::string* find_value(const NamedValues& values, std::string_view name) {
  const auto found = std::ranges::find(values, name, &NamedValues::value_type::first);
  return found == values.end() ? nullptr : &found->second;
}

std::string_view ServerRequest::cookie(std::string_view name) const {
  const std::string* cookies = header("cookie");
  std::string_view rest = cookies == nullptr ? std::string_view() : *cookies;
  while (!rest.empty()) {
    std::string_view value = trimmed(take_until(rest, ";"));
    if (take_until(value, "=") == name) return value;
  }
  return {};
}

HttpHead parse_head(std::string_view head) {
  HttpHead parsed;
  ServerRequest& request = parsed.request;
  parse_request_line(take_until(head, "\r\n"), request);
  while (true) {
    const std::string_view line = take_until(head, "\r\n");
    if (line.empty()) break;
    parse_header(line, request);
  }
  if (unique_header(request, "host") == nullptr && !request.is_http10)
    throw HttpFault{400, "the header Host is missing; send it"};
  parsed.body_bytes = body_bytes_of(request);
  const std::string* connection = request.header("connection");
  const std::string option = connection == nullptr ? "" : lowered(*connection);
  request.keep_alive = request.is_http10 ? option == "keep-alive" : option.find("close") == std::string::npos;
  return parsed;
}

std::optional<std::string> percent_decoded(std::string_view text, bool is_query) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '+' && is_query) c = ' ';
    if (c == '%') {
      const std::string_view digits = text.substr(i + 1, 2);
      unsigned value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (error != std::errc() || digits.size() != 2 || end != digits.data() + 2) return std::nullopt;
      c = static_cast<char>(value);
      i += 2;
    }
    if (is_control(c)) return std::nullopt;
    decoded += c;
  }
  return decoded;
}

std::string_view reason_phrase(int status) {
  static constexpr std::pair<int, std::string_view> kPhrases[] = {
      {200, "OK"},
      {204, "No Content"},
      {303, "See Other"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {503, "Service Unavailable"},
  };
  const auto* found = std::ranges::find(kPhrases, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kPhrases) ? "Unknown" : found->second;
}

}  // namespace hearth::net
