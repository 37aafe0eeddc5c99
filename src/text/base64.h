#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hearth::text {

/// Encodes bytes as base64 with padding.
std::string to_base64(std::string_view bytes);
/// Decodes base64 with padding. Returns nothing if `text` is empty or not valid base64.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace hearth::text
