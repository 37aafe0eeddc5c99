#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

/// "1.50 GiB", "12.0 KiB", "17 B".
std::string human_bytes(int64_t bytes);
/// Bytes of "20GiB", "512 MiB", "1.5G" (binary units unless written GB, MB, KB), or nothing.
std::optional<int64_t> parse_bytes(std::string_view text);
/// What separates words in files of ASCII text.
inline constexpr std::string_view kBlank = " \t\r\n";
/// Without what is blank at both ends, or at the end.
std::string_view trimmed(std::string_view text);
std::string_view without_blank_end(std::string_view text);
/// Takes the first line off `text` and returns it without its \n.
std::string_view take_line(std::string_view& text);
/// Returns the text without a byte order mark (BOM) at its start.
std::string_view without_bom(std::string_view text);
/// Returns the text with ASCII letters in lower case.
std::string lowered(std::string_view text);
/// Returns the first names, at most `max_names`, as "a, b, c" and ", ..." if there are more.
std::string listed(std::span<const std::string> names, size_t max_names);
/// UTF-8 text with what would steer a terminal spelled out (\x1b): control characters but for tabs and, where
/// `keeps_lines`, newlines; and every byte that is not UTF-8.
std::string printable(std::string_view text, bool keeps_lines = true);
/// A printable line of at most `limit` characters: of a longer one the start and the end.
std::string shortened(std::string_view text, size_t limit);
/// The candidate with the smallest edit distance to `word`, if it is near enough to be a typing error.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> candidates);
/// " (did you mean 'x'?)" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace hearth
