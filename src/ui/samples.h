#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::ui {

/// Image that an evaluation has generated, stored as samples/step-STEP-NAME.png in the run folder.
struct SampleImage {
  int64_t step = 0;
  std::string name;
};

/// Returns at most 20,000 generated images of a run, sorted by name and step. Skips symbolic links.
std::vector<SampleImage> list_samples(const fs::path& run);

/// Returns the bytes of a PNG file of list_samples(); nullopt if there is no such image.
std::optional<std::string> read_sample(const fs::path& run, int64_t step, std::string_view name);

}  // namespace hearth::ui
