#pragma once

#include <string>

#include "base/path.h"
#include "data/loader_options.h"

namespace hearth::hub {

/// A sentence with the keys to set where weights come with a config.json of timm's whose mean and std (in
/// pretrained_cfg, or at the top) are not those that pictures are normalized by; else empty. `weights`: a
/// folder, or a file beside which it lies. UserError where config.json is no JSON object.
std::string normalization_note(const fs::path& weights, const data::PixelOptions& pixels);

}  // namespace hearth::hub
