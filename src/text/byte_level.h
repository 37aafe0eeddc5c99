#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hearth::text {

/// Encodes bytes in the alphabet of GPT-2's files: one printable character per byte (a space is U+0120).
std::string to_byte_level(std::string_view bytes);
/// Decodes a string in GPT-2's alphabet to bytes. Returns nothing if a character is not in the alphabet.
std::optional<std::string> from_byte_level(std::string_view spelled);

}  // namespace hearth::text
