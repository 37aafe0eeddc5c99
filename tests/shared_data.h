#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "paths.h"

namespace hearth {

/// Where the shared test data of that name lies, if it is there: in $HEARTH_DATA, or in ../shared/data beside
/// the checkout.
inline std::filesystem::path shared_data_path(const char* name) {
  const char* set = std::getenv("HEARTH_DATA");
  const std::filesystem::path root = set != nullptr ? set : kSourceDir + "/../shared/data";
  return root / name;
}

}  // namespace hearth

/// Declares `variable` as the path of the shared test data of that name; where it is absent, says so and
/// skips the test.
#define HEARTH_SHARED_DATA(variable, name)                                 \
  const std::filesystem::path variable = ::hearth::shared_data_path(name); \
  if (!std::filesystem::exists(variable))                                  \
  GTEST_SKIP() << "SKIPPED: no test data at " << (variable) << " (set HEARTH_DATA to its parent folder)"
