#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::doctor {

/// Severity of a finding. note: no effect now. warning: training works, but is slower or less safe than
/// possible. broken: the GPU or component concerned cannot be used.
enum class Level : uint8_t { ok, note, warning, broken };
std::string_view level_name(Level level);

/// Result of a check.
struct Finding {
  Level level = Level::ok;
  std::string id;       ///< section of docs/doctor.md that explains it, such as "pcie-width"
  std::string subject;  ///< PCI address of the GPU concerned; empty: the machine
  std::string what;     ///< description of what was found
  std::string cost;     ///< effect on training; empty if there is none
  std::string fix;      ///< a command or instruction; empty if there is nothing to do
};

/// Returns the documentation page of a finding.
std::string page_of(const Finding& finding);

/// Returns the highest level of the findings; ok if there are none.
Level worst_of(const std::vector<Finding>& findings);
/// Returns the exit status of `hearth doctor`: 0 without warnings, 1 for warnings, 2 if something is broken.
int exit_status(const std::vector<Finding>& findings);

}  // namespace hearth::doctor
