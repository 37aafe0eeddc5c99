#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/http_exchange.h"

namespace hearth::net {

/// Returns a reply with status 403 if the header Host is not an IP address, localhost, `host` or one of
/// `allowed_hosts` (protects against DNS rebinding), or if the header Origin of a request other than GET and
/// HEAD names another site. Returns nullopt if the request is allowed.
std::optional<HttpReply> refuse_other_sites(const ServerRequest& request, std::string_view host,
                                            std::span<const std::string> allowed_hosts);

/// Returns nullopt if the header Authorization or the cookie `cookie_name` contains the token, or if `token`
/// is empty. Otherwise returns the reply to send: 303, which sets the cookie, if the query of a GET contains
/// the token; 401 if it does not.
std::optional<HttpReply> refuse_without_token(const ServerRequest& request, std::string_view token,
                                              const std::string& cookie_name);

}  // namespace hearth::net
