#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hearth::text {

/// The alphabet in which GPT-2's files spell bytes: each byte one printable character (a space is U+0120).
std::string to_byte_level(std::string_view bytes);
/// The bytes that such a spelling stands for; nothing when a character is not of the alphabet.
std::optional<std::string> from_byte_level(std::string_view spelled);

}  // namespace hearth::text
