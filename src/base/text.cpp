#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <vector>

namespace hearth {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};
constexpr double kKi = 1024.0;
constexpr auto kUnits = std::to_array<Unit>({{"", 1},
                                             {"B", 1},
                                             {"K", kKi},
                                             {"KiB", kKi},
                                             {"KB", 1e3},
                                             {"M", kKi* kKi},
                                             {"MiB", kKi* kKi},
                                             {"MB", 1e6},
                                             {"G", kKi* kKi* kKi},
                                             {"GiB", kKi* kKi* kKi},
                                             {"GB", 1e9},
                                             {"T", kKi* kKi* kKi* kKi},
                                             {"TiB", kKi* kKi* kKi* kKi},
                                             {"TB", 1e12}});

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= kKi && unit + 1 < kNames.size()) {
    value /= kKi;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  return fmt::format("{:.{}f} {}", value, value < 10 ? 2 : 1, kNames[unit]);
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  double value = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return std::nullopt;
  std::string_view suffix(rest, static_cast<size_t>(text.data() + text.size() - rest));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (unit.name != suffix) continue;
    const double bytes = value * unit.bytes;
    if (bytes > 9e18) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  text = without_blank_end(text);
  return text.substr(std::min(text.find_first_not_of(kBlank), text.size()));
}

std::string_view without_blank_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

namespace {

/// Returns the number of bytes of the UTF-8 character at the start of `text`; 0 if the bytes are not valid
/// UTF-8.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t size = byte(0) < 0x80   ? 1
                      : byte(0) < 0xc2 ? 0
                      : byte(0) < 0xe0 ? 2
                      : byte(0) < 0xf0 ? 3
                      : byte(0) < 0xf5 ? 4
                                       : 0;
  if (size == 0 || size > text.size()) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool is_overlong = (byte(0) == 0xe0 && byte(1) < 0xa0) || (byte(0) == 0xf0 && byte(1) < 0x90);
  const bool is_beyond = (byte(0) == 0xed && byte(1) > 0x9f) || (byte(0) == 0xf4 && byte(1) > 0x8f);
  return is_overlong || is_beyond ? 0 : size;
}

bool steers(std::string_view character, bool keeps_lines) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first == '\t' || (first == '\n' && keeps_lines)) return false;
  return first < 0x20 || first == 0x7f || (first == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0);
}

}  // namespace

std::string_view without_bom(std::string_view text) {
  return text.starts_with("\xEF\xBB\xBF") ? text.substr(3) : text;
}

std::string lowered(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

std::string listed(std::span<const std::string> names, size_t max_names) {
  const std::span shown = names.first(std::min(names.size(), max_names));
  return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < names.size() ? ", ..." : "");
}

std::string printable(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t size = character_bytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(1, size));
    if (size > 0 && !steers(character, keeps_lines)) {
      out += character;
    } else {
      for (const char byte : character) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    text.remove_prefix(character.size());
  }
  return out;
}

std::string shortened(std::string_view text, size_t limit) {
  const std::string line = printable(text, false);
  std::vector<size_t> starts;
  for (size_t i = 0; i < line.size(); ++i) {
    if ((static_cast<unsigned char>(line[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  if (starts.size() <= limit) return line;
  constexpr std::string_view kGap = " [...] ";
  const size_t num_last = limit / 3, num_first = limit - kGap.size() - num_last;
  return line.substr(0, starts[num_first]) + std::string(kGap) +
         line.substr(starts[starts.size() - num_last]);
}

std::optional<std::string> nearest_name(std::string_view word, std::span<const std::string> candidates) {
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    const size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto near = nearest_name(word, candidates);
  return near ? fmt::format(" (did you mean '{}'?)", *near) : "";
}

}  // namespace hearth
