#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

/// Formats a size: "1.50 GiB", "12.0 KiB", "17 B".
std::string human_bytes(int64_t bytes);
/// Parses a size such as "20GiB", "512 MiB" or "1.5G" and returns bytes; nullopt if invalid. Units are
/// binary, except GB, MB and KB, which are powers of 1000.
std::optional<int64_t> parse_bytes(std::string_view text);
/// Characters that count as whitespace in ASCII text files.
inline constexpr std::string_view kBlank = " \t\r\n";
/// Returns the text without leading and trailing whitespace.
std::string_view trimmed(std::string_view text);
/// Returns the text without trailing whitespace.
std::string_view without_blank_end(std::string_view text);
/// Removes the first line from `text` and returns it without its \n.
std::string_view take_line(std::string_view& text);
/// Returns the text without a byte order mark (BOM) at its start.
std::string_view without_bom(std::string_view text);
/// Returns the text with ASCII letters in lower case.
std::string lowered(std::string_view text);
/// Returns the first `max_names` names as "a, b, c", followed by ", ..." if there are more.
std::string listed(std::span<const std::string> names, size_t max_names);
/// Returns the text with characters that could affect a terminal (control characters, bytes that are not
/// UTF-8) replaced by escapes such as \x1b. Keeps tabs and, with `keeps_lines`, newlines.
std::string printable(std::string_view text, bool keeps_lines = true);
/// Returns the text as one printable line of at most `limit` characters; longer text is cut in the middle.
std::string shortened(std::string_view text, size_t limit);
/// Returns the candidate with the smallest edit distance to `word`; nullopt if none is close enough to
/// be a typo.
std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> candidates);
/// Returns " (did you mean 'x'?)" with the nearest candidate, or "" if none is close.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace hearth
