#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "net/http_exchange.h"

namespace hearth::net {

/// Returns the refusal of a request whose header Host may come from DNS rebinding, or whose header Origin
/// names another site; nullopt if both are as expected.
std::optional<HttpReply> refuse_other_sites(const ServerRequest& request, std::string_view host,
                                            std::span<const std::string> allowed_hosts);

/// Returns the reply to a request without the token: 401, or the redirect that stores the token of the query
/// as cookie `cookie_name`; nullopt if the request has the token.
std::optional<HttpReply> refuse_without_token(const ServerRequest& request, std::string_view token,
                                              const std::string& cookie_name);

}  // namespace hearth::net
