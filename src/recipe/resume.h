#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::recipe {

/// A key that may change when a run resumes.
struct ResumeKey {
  std::string_view key;
  /// Condition under which the key may change, as text for users; empty: always.
  std::string_view condition = "";
  /// Checks the condition; null: always true.
  bool (*may_change)(const Recipe& before, const Recipe& after) = nullptr;
};
/// Returns the keys that may change. docs/reliability.md has the same list.
std::span<const ResumeKey> resume_keys();

/// Returns the names of the keys whose values differ.
std::vector<std::string> changed_keys(const Recipe& before, const Recipe& after);
/// Returns why a run with recipe `before` cannot resume with recipe `after`, with the first key that may not
/// change; empty if it can resume.
std::string fault_of_resume(const Recipe& before, const Recipe& after);

}  // namespace hearth::recipe
