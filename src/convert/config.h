#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::convert {

/// Value of a key: a scalar, null, or a list without maps.
using Value = nlohmann::ordered_json;

/// Key and value of another tool's config, with their location in the file.
struct Entry {
  std::string path;  ///< full name with indices: "datasets[0].type"
  std::string key;   ///< full name without indices: "datasets.type"
  Value value;
  std::string where;  ///< FILE:LINE; for JSON only FILE
};

/// Config file of another tool as a list of entries, in the order of the file.
class Config {
 public:
  /// Parses TOML (*.toml), JSON (*.json) or YAML (other extensions). Throws a UserError if the text is
  /// invalid, has no keys, sets a key twice or has more than kMaxEntries values.
  Config(const std::string& text, const fs::path& file);

  std::span<const Entry> entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }
  /// Returns the first entry of a key without indices, if its value is not null; otherwise nullptr.
  const Entry* find(std::string_view key) const;
  /// True if there is a value or a section with this name.
  bool has(std::string_view key) const;
  /// Returns the value as text; `otherwise` if the key is absent or null.
  std::string text(std::string_view key, std::string_view otherwise = "") const;
  /// Returns the value as a number; `otherwise` if the key is absent, null or not a number.
  double number(std::string_view key, double otherwise) const;
  /// True if the value is true.
  bool is_true(std::string_view key) const;

  static constexpr size_t kMaxEntries = 5000;

 private:
  std::vector<Entry> entries_;
};

/// Returns a scalar as plain text, and a list as "[a, b]".
std::string text_of(const Value& value);
/// Returns the number in a value: a number, or text such as "1e-4"; `otherwise` if there is none.
double number_of(const Value& value, double otherwise);
/// Returns the shortest text of a number: "100", "0.0002".
std::string number_text(double number);
/// Returns the elements of a list as texts, or the parts of a text between commas.
std::vector<std::string> texts_of(const Value& value);

/// Parses TOML and appends its entries. Throws a UserError with FILE:LINE if the TOML is invalid.
void read_toml(const std::string& text, const std::string& file, std::vector<Entry>& entries);

}  // namespace hearth::convert
