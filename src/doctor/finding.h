#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::doctor {

/// note: costs nothing now, and is good to know. warning: training works, and is slower or less safe than it
/// could be. broken: what was looked at cannot be used.
enum class Level : uint8_t { ok, note, warning, broken };
std::string_view level_name(Level level);

/// One line about this machine.
struct Finding {
  Level level = Level::ok;
  std::string id;       ///< "pcie-width": what docs/doctor.md has a section for
  std::string subject;  ///< a GPU's address; empty: the machine
  std::string what;     ///< what is so
  std::string cost;     ///< what follows from it for training; empty where nothing does
  std::string fix;      ///< a command, or what to do; empty where there is nothing to do
};

/// The page on findings of that kind.
std::string page_of(const Finding& finding);

Level worst_of(const std::vector<Finding>& findings);
/// 0: nothing above a note. 1: warnings. 2: something is broken.
int exit_status(const std::vector<Finding>& findings);

}  // namespace hearth::doctor
