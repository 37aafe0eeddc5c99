#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

/// Maximum size of a YAML text.
constexpr int64_t kMaxYamlBytes = 1 << 20;

/// Returns the line of the first byte that is not UTF-8 text, or 0 if all are.
int64_t line_of_bytes_that_are_no_text(std::string_view text);

/// Kind of a YAML file, for messages.
struct YamlKind {
  std::string_view name;    ///< "recipe"
  std::string_view advice;  ///< "try ...", used if the file is too large or not text
};

/// Parses a text that must be a single YAML document of limited size and depth; UserError with `where` and
/// the line if it is not.
YAML::Node parse_yaml(const std::string& text, const std::string& where, const YamlKind& kind);
/// Returns the text as a double-quoted YAML scalar on one line; UTF-8 characters are not escaped.
std::string yaml_quoted(std::string_view text);

}  // namespace hearth
