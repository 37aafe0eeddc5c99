#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::recipe {

/// What registries of other rooms let keys be.
struct Choices {
  /// By key: "model.name" is one of {"mlp", ...}; "data.template" may be a file too. A key that is not here
  /// takes any text.
  std::map<std::string, std::vector<std::string>> names;
  /// Whether a text other than "cpu" stands for a device; null: every text does.
  bool (*is_gpu)(std::string_view) = nullptr;

  /// Those of a key, or none.
  const std::vector<std::string>& of(const std::string& key) const {
    static const std::vector<std::string> kNone;
    const auto found = names.find(key);
    return found == names.end() ? kNone : found->second;
  }
};

}  // namespace hearth::recipe
