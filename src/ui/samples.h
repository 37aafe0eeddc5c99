#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::ui {

/// An image that an evaluation has generated: samples/step-STEP-NAME.png of a run.
struct SampleImage {
  int64_t step = 0;
  std::string name;
};

/// Lists the generated images of a run, by name and step. At most 20,000. Links are not followed.
std::vector<SampleImage> list_samples(const fs::path& run);

/// Returns the bytes of a PNG file of list_samples(); nullopt if there is no such image.
std::optional<std::string> read_sample(const fs::path& run, int64_t step, std::string_view name);

}  // namespace hearth::ui
