#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hearth::text {

/// The bytes of base64 with its padding; nothing when it is none, or empty.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace hearth::text
