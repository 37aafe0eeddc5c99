#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

namespace hearth {

/// A folder of the shared test data ($HEARTH_DATA, or ../shared/data beside the checkout). Where it is
/// absent, prints a loud line and returns nothing; the caller then leaves the test.
inline std::optional<std::filesystem::path> shared_data(const char* name) {
  const char* set = std::getenv("HEARTH_DATA");
  const std::filesystem::path root = set != nullptr ? set : HEARTH_SOURCE_DIR "/../shared/data";
  const std::filesystem::path path = root / name;
  if (std::filesystem::exists(path)) return path;
  std::cout << "SKIPPED: no test data at " << path << " (set HEARTH_DATA to its parent folder)\n";
  return std::nullopt;
}

}  // namespace hearth
