#pragma once

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace hearth::models {

/// Reads members of a JSON object by name; error messages name the file and key.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::ordered_json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  /// Returns a reader of an empty config.
  static ConfigReader none(std::string where) {
    static const nlohmann::ordered_json empty = nlohmann::ordered_json::object();
    return {empty, std::move(where)};
  }

  std::vector<std::string> keys() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items()) names.push_back(name);
    return names;
  }
  /// True if the key is present and not null.
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  /// True if the key is present and null.
  bool has_null(const char* key) const { return object_.contains(key) && object_.at(key).is_null(); }

  /// Returns an integer in [min_value, max_value]; `default_value` if the key is absent. This function and
  /// the getters below throw UserError for a value of the wrong type or out of range.
  int64_t integer(const char* key, std::optional<int64_t> default_value, int64_t min_value,
                  int64_t max_value) const {
    if (!has(key) && default_value) return *default_value;
    const nlohmann::ordered_json& value = at(key);
    const bool whole = value.is_number_integer() && value >= min_value && value <= max_value;
    if (!whole) fail(key, fmt::format("a whole number from {} to {}", min_value, max_value));
    return value.get<int64_t>();
  }
  double number(const char* key, double default_value) const {
    if (!has(key)) return default_value;
    const nlohmann::ordered_json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "a number");
    return value.get<double>();
  }
  bool flag(const char* key, bool default_value) const {
    if (!has(key)) return default_value;
    if (!at(key).is_boolean()) fail(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& default_value) const {
    if (!object_.contains(key)) return default_value;
    if (!at(key).is_string()) fail(key, "text");
    return at(key).get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> values;
    if (!at(key).is_array()) fail(key, "a list of numbers");
    for (const nlohmann::ordered_json& value : at(key)) {
      if (!value.is_number() || !(value.get<double>() > 0)) fail(key, "a list of positive numbers");
      values.push_back(value.get<double>());
    }
    return values;
  }
  /// Returns a value that is a number or a list of numbers as a list.
  std::vector<int64_t> ids(const char* key) const {
    if (!has(key)) return {};
    const nlohmann::ordered_json& value = at(key);
    const auto list = value.is_array() ? value : nlohmann::ordered_json::array({value});
    for (const nlohmann::ordered_json& item : list) {
      if (!item.is_number_integer() || item < 0) fail(key, "token ids");
    }
    return list.get<std::vector<int64_t>>();
  }
  /// Returns a reader of the object under `key`; nullopt if the key is absent.
  std::optional<ConfigReader> object(const char* key) const {
    if (!has(key)) return std::nullopt;
    if (!at(key).is_object()) fail(key, "an object");
    return ConfigReader(at(key), fmt::format("{}, {}", where_, key));
  }
  /// Returns a member; throws a UserError if it is absent.
  const nlohmann::ordered_json& at(const char* key) const {
    if (!object_.contains(key)) user_error("{}: expected the key \"{}\", got none", where_, key);
    return object_.at(key);
  }
  /// Throws a UserError about the value of a key. `expected`: description of valid values, such as "a
  /// number".
  [[noreturn]] void fail(const char* key, std::string_view expected) const {
    user_error("{}: expected {} for \"{}\", got {}", where_, expected, key,
               object_.at(key).dump().substr(0, 60));
  }
  const std::string& where() const { return where_; }

 private:
  const nlohmann::ordered_json& object_;
  std::string where_;
};

}  // namespace hearth::models
