#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::recipe {

/// A key that may be changed when a run resumes.
struct ResumeKey {
  std::string_view key;
  /// When it may be, for people; empty: always.
  std::string_view condition = "";
  bool (*may_change)(const Recipe& before, const Recipe& after) = nullptr;  ///< null: always
};
/// All of them; docs/reliability.md has the same list.
std::span<const ResumeKey> resume_keys();

/// Keys whose values differ.
std::vector<std::string> changed_keys(const Recipe& before, const Recipe& after);
/// Why a run of `before` cannot resume as `after`, with the key; empty if it can.
std::string fault_of_resume(const Recipe& before, const Recipe& after);

}  // namespace hearth::recipe
