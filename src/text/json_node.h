#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::text {

/// Parses JSON. Throws a UserError naming `file` if the text is not valid JSON.
nlohmann::json parse_json(std::string_view text, std::string_view file);
/// Reads and parses a file of at most 256 MiB.
nlohmann::json read_json(const fs::path& path);

/// A value of a JSON file with its path in the file, so that each error names file and field. Does not own
/// the value.
class JsonNode {
 public:
  /// Creates a reference to `json`, which must outlive this object. `field`: path of the value in the file,
  /// such as model.type.
  JsonNode(const nlohmann::json& json, std::string_view file, std::string field = "");

  const nlohmann::json& json() const { return *json_; }
  /// Returns "FILE: field 'model.type'".
  std::string where() const;
  const std::string& file() const { return file_; }

  /// Returns a member of this object; throws a UserError if it is missing.
  JsonNode at(const std::string& key) const;
  /// Returns a member of this object; nothing if it is missing or null.
  std::optional<JsonNode> find(const std::string& key) const;
  /// Returns the elements of this array. This function and those below throw a UserError if the value has
  /// another type.
  std::vector<JsonNode> elements() const;
  /// Returns the members of this object.
  std::vector<std::pair<std::string, JsonNode>> members() const;

  std::string string() const;
  bool boolean() const;
  /// Returns the integer; throws a UserError if it is not in [low, high].
  int64_t integer(int64_t low, int64_t high) const;
  /// Return the string or boolean member `key`; `default_value` if it is missing or null.
  std::string string_or(const std::string& key, const std::string& default_value) const;
  bool boolean_or(const std::string& key, bool default_value) const;

  /// Throws the UserError "FILE: field 'NAME': expected EXPECTED, got VALUE".
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  const nlohmann::json* json_;
  std::string file_;
  std::string field_;
};

}  // namespace hearth::text
