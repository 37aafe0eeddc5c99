#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

namespace hearth::convert {
/// Throws std::invalid_argument if an assertion of toml++ fails.
constexpr void check_toml(bool condition) {
  if (!condition) throw std::invalid_argument("unexpected character");
}
}  // namespace hearth::convert

// toml++ detects some syntax errors, such as [/a], by assertions only.
#undef NDEBUG
#define TOML_ASSERT(condition) ::hearth::convert::check_toml(static_cast<bool>(condition))
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/error.h"
#include "base/yaml.h"
#include "convert/config.h"

namespace hearth::convert {
namespace {

/// Escapes '~' and bytes above 127 as ~XX, in hexadecimal: toml++ has undefined behavior for such characters
/// outside of strings.
std::string to_ascii(std::string_view text) {
  std::string ascii;
  for (const char c : text) {
    if (c == '~' || static_cast<unsigned char>(c) > 127)
      ascii += fmt::format("~{:02X}", static_cast<unsigned char>(c));
    else
      ascii += c;
  }
  return ascii;
}

/// Inverse of to_ascii().
std::string from_ascii(std::string_view ascii) {
  std::string text;
  for (size_t i = 0; i < ascii.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = ascii.data() + i + 1;
    const bool is_escape = ascii[i] == '~' && i + 2 < ascii.size() &&
                           std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    text += is_escape ? static_cast<char>(byte) : ascii[i];
    if (is_escape) i += 2;
  }
  return text;
}

bool is_plain_array(const toml::array& array) {
  for (const toml::node& element : array)
    if (element.is_table() || (element.is_array() && !is_plain_array(*element.as_array()))) return false;
  return true;
}

/// Returns a scalar or a list of scalars; null for a date.
Value toml_value(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return from_ascii(*text);
  if (const auto flag = node.value_exact<bool>()) return *flag;
  if (const auto whole = node.value_exact<int64_t>()) return *whole;
  if (const auto number = node.value_exact<double>()) return *number;
  if (!node.is_array()) return nullptr;
  Value list = Value::array();
  for (const toml::node& element : *node.as_array()) list.push_back(toml_value(element));
  return list;
}

void flatten(const toml::node& node, const std::string& path, const std::string& key, const std::string& file,
             std::vector<Entry>& entries) {
  if (const toml::table* table = node.as_table()) {
    const std::string dot = key.empty() ? "" : ".";
    for (const auto& [escaped, inner] : *table) {
      const std::string name = dot + from_ascii(escaped.str());
      flatten(inner, path + name, key + name, file, entries);
    }
  } else if (node.is_array() && !is_plain_array(*node.as_array())) {
    size_t i = 0;
    for (const toml::node& element : *node.as_array())
      flatten(element, fmt::format("{}[{}]", path, i++), key, file, entries);
  } else {
    const std::string where = fmt::format("{}:{}", file, node.source().begin.line);
    if (entries.size() >= Config::kMaxEntries)
      user_error("{}: more than {} values; shorten the file", where, Config::kMaxEntries);
    entries.push_back({.path = path, .key = key, .value = toml_value(node), .where = where});
  }
}

}  // namespace

void read_toml(const std::string& text, const std::string& file, std::vector<Entry>& entries) {
  if (const int64_t line = line_of_bytes_that_are_no_text(text); line != 0)
    user_error("{}:{}: invalid bytes; save the file as UTF-8 text", file, line);
  try {
    flatten(toml::parse(to_ascii(text)), "", "", file, entries);
    // toml++ sorts keys by name.
    std::ranges::stable_sort(entries, {}, [](const Entry& entry) {
      return std::atoi(entry.where.c_str() + entry.where.rfind(':') + 1);
    });
  } catch (const toml::parse_error& error) {
    user_error("{}:{}: invalid TOML ({}); correct the line", file, error.source().begin.line,
               error.description());
  } catch (const std::invalid_argument& error) {
    user_error("{}: invalid TOML ({}); check the section names", file, error.what());
  }
}

}  // namespace hearth::convert
