#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

/// Maximum size of a YAML text.
constexpr int64_t kMaxYamlBytes = 1 << 20;

/// Returns the number of the first line with bytes that are not UTF-8 text; 0 if there is none.
int64_t line_of_bytes_that_are_no_text(std::string_view text);

/// Words for the kind of a YAML file in messages.
struct YamlKind {
  std::string_view name;    ///< "recipe" or the like
  std::string_view advice;  ///< end of a message, "try ...", for files that are too large or not text
};

/// Parses a text that must be a single YAML document of limited size and depth; UserError with `where` and
/// the line if it is not.
YAML::Node parse_yaml(const std::string& text, const std::string& where, const YamlKind& kind);
/// Returns the text as a double-quoted YAML scalar on one line; UTF-8 characters are not escaped.
std::string yaml_quoted(std::string_view text);

}  // namespace hearth
