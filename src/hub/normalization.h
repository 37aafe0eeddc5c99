#pragma once

#include <optional>
#include <vector>

#include "base/path.h"

namespace hearth::hub {

/// Mean and standard deviation of each channel, for pixel values in [0, 1].
struct Normalization {
  fs::path file;  ///< file that contains the values
  std::vector<float> mean, std;
};
/// True if both normalizations are equal up to rounding.
bool agree(const Normalization& one, const Normalization& other);

/// Returns the normalization that weights were trained with, from timm's config.json (in pretrained_cfg, or
/// at the top); nullopt if there is none. `weights`: a folder, or a weights file next to config.json. Throws
/// a UserError if config.json is not a JSON object.
std::optional<Normalization> known_normalization(const fs::path& weights);

}  // namespace hearth::hub
