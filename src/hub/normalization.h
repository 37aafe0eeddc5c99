#pragma once

#include <optional>
#include <vector>

#include "base/path.h"

namespace hearth::hub {

/// Mean and std of each channel, of pixels from 0 to 1.
struct Normalization {
  fs::path file;  ///< where they are stated
  std::vector<float> mean, std;
};
/// True if images come out alike, but for what people round.
bool agree(const Normalization& one, const Normalization& other);

/// Returns the normalization that weights were trained with, from timm's config.json (in pretrained_cfg, or
/// at the top); nothing where it states none. `weights`: a folder, or a file in the same folder. UserError
/// where config.json is no JSON object.
std::optional<Normalization> known_normalization(const fs::path& weights);

}  // namespace hearth::hub
