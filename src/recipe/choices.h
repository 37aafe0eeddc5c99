#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::recipe {

/// Allowed values of recipe keys that name a model, dataset, optimizer and so on. Passed in by the caller,
/// because src/recipe does not depend on the code that defines them.
struct Choices {
  /// Allowed values by key: "model.name" is one of {"mlp", ...}. "data.template" may also be a file. Keys
  /// without an entry accept any text.
  std::map<std::string, std::vector<std::string>> names;
  /// Returns true if a text is the name of a GPU, a valid value of `device` besides "cpu". Null: accepts
  /// every text.
  bool (*is_gpu)(std::string_view) = nullptr;

  /// Returns the allowed values of a key; empty if any value is allowed.
  const std::vector<std::string>& of(const std::string& key) const {
    static const std::vector<std::string> kNone;
    const auto found = names.find(key);
    return found == names.end() ? kNone : found->second;
  }
};

}  // namespace hearth::recipe
