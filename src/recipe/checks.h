#pragma once

#include <map>
#include <string>
#include <utility>

#include "recipe/recipe.h"

namespace hearth::recipe {

/// Where each key of a recipe was given: FILE:LINE, or an override.
class Places {
 public:
  /// Prefix of the location of a key that was set by an override.
  static constexpr const char* kOverride = "the override ";

  explicit Places(std::string file) : file_(std::move(file)) {}
  void set(const std::string& key, const std::string& where) { where_[key] = where; }
  bool contains(const std::string& key) const { return where_.contains(key); }
  bool is_override(const std::string& key) const { return contains(key) && of(key).starts_with(kOverride); }
  const std::string& of(const std::string& key) const {
    const auto found = where_.find(key);
    return found == where_.end() ? file_ : found->second;
  }

 private:
  std::string file_;
  std::map<std::string, std::string> where_;
};

/// Fills in what follows from other keys: what the objective says of the data, and how devices share an
/// update, by a smaller micro-batch where the recipe does not divide it. UserError for what devices cannot
/// share.
void complete(Recipe& recipe, const Places& places);
/// UserError for values that do not go together.
void check(const Recipe& recipe, const Places& places);

}  // namespace hearth::recipe
