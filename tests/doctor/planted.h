#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "doctor/finding.h"

namespace hearth::doctor {

/// A machine of tests/doctor/machines, planted below a folder, with what the doctor is to find. A description
/// has a line for each file (README.md there).
struct PlantedMachine {
  std::vector<std::string>
      expected;  ///< "warning pcie-width 0000:03:00.0", above notes and notes, in no order
  int status = 0;
  bool owns_groups = true;  ///< false: the files' groups could not be set, as only root may
};
PlantedMachine plant(const fs::path& description, const fs::path& root);

/// The names of all descriptions.
std::vector<std::string> machine_names();
fs::path machines_folder();

}  // namespace hearth::doctor
