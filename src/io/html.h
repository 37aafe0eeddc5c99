#pragma once

#include <string>
#include <string_view>

namespace hearth::io {

/// Escapes a text for HTML.
std::string escape_html(std::string_view text);
/// Encodes bytes in base64.
std::string base64(std::string_view bytes);

}  // namespace hearth::io
