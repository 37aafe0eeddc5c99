#pragma once

#include <map>
#include <string>
#include <utility>

namespace hearth::recipe {

/// Location of each key of a recipe, for messages: FILE:LINE, or the override that set it.
class KeyLocations {
 public:
  /// Prefix of the location text of a key that was set by an override.
  static constexpr const char* kOverride = "the override ";

  explicit KeyLocations(std::string file) : file_(std::move(file)) {}
  void set(const std::string& key, const std::string& where) { where_[key] = where; }
  /// True if the recipe sets the key.
  bool contains(const std::string& key) const { return where_.contains(key); }
  bool is_override(const std::string& key) const { return contains(key) && of(key).starts_with(kOverride); }
  /// Returns the location of a key; the file's name for a default value.
  const std::string& of(const std::string& key) const {
    const auto found = where_.find(key);
    return found == where_.end() ? file_ : found->second;
  }

 private:
  std::string file_;
  std::map<std::string, std::string> where_;
};

}  // namespace hearth::recipe
