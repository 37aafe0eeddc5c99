#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

constexpr int64_t kMaxYamlBytes = 1 << 20;

/// The line of the first byte that is not text in UTF-8, or 0.
int64_t line_of_bytes_that_are_no_text(std::string_view text);

/// What a YAML file holds, for messages.
struct YamlKind {
  std::string_view name;    ///< "recipe"
  std::string_view advice;  ///< "try ..." where it is too large or no text
};

/// The one YAML document in a text of bounded size and depth; UserError with `where` and the line where it is
/// none.
YAML::Node parse_yaml(const std::string& text, const std::string& where, const YamlKind& kind);
/// The text as a double-quoted YAML scalar on one line; UTF-8 stays as it is.
std::string yaml_quoted(std::string_view text);

}  // namespace hearth
