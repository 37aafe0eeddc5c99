#pragma once

#include "convert/rule.h"

namespace hearth::convert {

// Conversions for several tools that train image generation models.

/// Sets adapter.targets to the linear layers of FLUX's blocks, with their names in diffusers.
Result set_flux_targets(Importer& importer, std::string_view note);
/// Sets data.image_size from a number, "W,H", or a list. Refuses sides that differ.
Convert convert_resolution;

}  // namespace hearth::convert
