#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::text {

/// The value of JSON text. UserError naming `file` where it holds none.
nlohmann::json parse_json(std::string_view text, std::string_view file);
/// Reads and parses a file of at most 256 MiB.
nlohmann::json read_json(const fs::path& path);

/// A value of a JSON file that knows its place there, so that every error names file and field. Refers to the
/// value.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& json, std::string_view file, std::string field = "");

  const nlohmann::json& json() const { return *json_; }
  /// "FILE: field 'model.type'".
  std::string where() const;
  const std::string& file() const { return file_; }

  /// A member of this object; UserError when it is missing.
  JsonNode at(const std::string& key) const;
  /// A member of this object; nothing when it is missing or null.
  std::optional<JsonNode> find(const std::string& key) const;
  /// The elements of this array.
  std::vector<JsonNode> elements() const;
  /// The members of this object.
  std::vector<std::pair<std::string, JsonNode>> members() const;

  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t low, int64_t high) const;
  std::string string_or(const std::string& key, const std::string& otherwise) const;
  bool boolean_or(const std::string& key, bool otherwise) const;

  /// Throws UserError: FILE: expected `expected` for the field, got this value.
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* json_;
  std::string file_;
  std::string field_;
};

}  // namespace hearth::text
