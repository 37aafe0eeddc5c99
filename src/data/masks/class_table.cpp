#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "data/captions/image_files.h"
#include "data/masks/masks.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxClassTableBytes = 1 << 20;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    parts.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

std::optional<uint8_t> byte_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > 255)
    return std::nullopt;
  return static_cast<uint8_t>(value);
}

MaskClass parse_line(std::string_view line, const std::string& where) {
  const std::vector<std::string_view> parts = split(line, ',');
  MaskClass made{.name = std::string(parts[0])};
  if (made.name.empty() || (parts.size() != 1 && parts.size() != 4))
    user_error("{}: expected a class as NAME or NAME,RED,GREEN,BLUE, got '{}'", where, printable(line));
  for (size_t c = 0; c + 1 < parts.size(); ++c) {
    const auto value = byte_of(parts[c + 1]);
    if (!value)
      user_error("{}: expected red, green and blue from 0 to 255, got '{}'", where, printable(line));
    made.color[c] = *value;
  }
  return made;
}

/// Parses a line such as "1, cat" of Roboflow's table, which numbers classes from 0. `expected`: the number
/// that the line must have.
MaskClass parse_numbered(std::string_view line, int64_t expected, const std::string& where) {
  const std::vector<std::string_view> parts = split(line, ',');
  if (parts.size() != 2 || parts[0] != std::to_string(expected) || parts[1].empty() ||
      expected >= kMaxMaskClasses)
    user_error("{}: expected the value {} and the name of its class, got '{}'", where, expected,
               printable(line));
  return {.name = std::string(parts[1]), .color = palette_color(expected)};
}

}  // namespace

std::vector<MaskClass> read_class_table(const fs::path& path) {
  return parse_class_table(read_text(path, kMaxClassTableBytes), path.string());
}

std::vector<MaskClass> parse_class_table(std::string_view text, std::string_view name) {
  std::vector<MaskClass> classes;
  bool has_colors = false, has_numbers = false;
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (number == 1) has_numbers = line == "Pixel Value, Class";
    const bool is_header = number == 1 && (line == "name,r,g,b" || line == "name" || has_numbers);
    if (line.empty() || line[0] == '#' || is_header) continue;
    const std::string where = fmt::format("{}:{}", name, number);
    if (has_numbers) {
      classes.push_back(parse_numbered(line, std::ssize(classes), where));
      continue;
    }
    const bool colored = line.find(',') != line.npos;
    if (classes.empty()) has_colors = colored;
    if (colored != has_colors)
      user_error("{}: some classes have colors and some have none; give colors to all or none", where);
    MaskClass made = parse_line(line, where);
    if (std::ranges::find(classes, made.name, &MaskClass::name) != classes.end())
      user_error("{}: the class '{}' occurs twice; delete one", where, printable(made.name));
    if (colored && std::ranges::find(classes, made.color, &MaskClass::color) != classes.end())
      user_error("{}: another class has the color of '{}'; give it a different one", where,
                 printable(made.name));
    if (!colored) made.color = palette_color(std::ssize(classes));
    classes.push_back(std::move(made));
    if (std::ssize(classes) > kMaxMaskClasses)
      user_error("{}: there are more than {} classes; delete some", where, kMaxMaskClasses);
  }
  if (classes.empty()) user_error("{}: there is no class; write the name of one in each line", name);
  return classes;
}

}  // namespace hearth::data
