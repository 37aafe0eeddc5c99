#pragma once

#include "convert/rule.h"

namespace hearth::convert {

// Conversions that tools for image generation share.

/// Sets adapter.targets to the linear layers of FLUX's blocks, by diffusers' names.
Result set_flux_targets(Importer& importer, std::string_view note);
/// data.image_size from a number, "W,H", or a list of equal sides or of one number.
Convert convert_resolution;

}  // namespace hearth::convert
