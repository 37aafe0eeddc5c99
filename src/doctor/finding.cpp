#include "doctor/finding.h"

#include <algorithm>
#include <array>

namespace hearth::doctor {

std::string_view level_name(Level level) {
  constexpr auto kNames = std::to_array<std::string_view>({"ok", "note", "warning", "broken"});
  return kNames.at(static_cast<size_t>(level));
}

std::string page_of(const Finding& finding) { return "docs/doctor.md#" + finding.id; }

Level worst_of(const std::vector<Finding>& findings) {
  Level worst = Level::ok;
  for (const Finding& finding : findings) worst = std::max(worst, finding.level);
  return worst;
}

int exit_status(const std::vector<Finding>& findings) {
  return std::max(0, static_cast<int>(worst_of(findings)) - static_cast<int>(Level::note));
}

}  // namespace hearth::doctor
