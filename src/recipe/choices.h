#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::recipe {

/// Allowed names of recipe keys, from registries of other rooms (models, datasets, optimizers).
struct Choices {
  /// Allowed values by key: "model.name" is one of {"mlp", ...}. "data.template" may also be a file. A key
  /// that is not here takes any text.
  std::map<std::string, std::vector<std::string>> names;
  /// Returns true if a text other than "cpu" is the name of a device; null: every text is.
  bool (*is_gpu)(std::string_view) = nullptr;

  /// Returns the allowed values of a key; empty if any value is allowed.
  const std::vector<std::string>& of(const std::string& key) const {
    static const std::vector<std::string> kNone;
    const auto found = names.find(key);
    return found == names.end() ? kNone : found->second;
  }
};

}  // namespace hearth::recipe
