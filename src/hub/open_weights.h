#pragma once

#include "io/weight_files.h"

namespace hearth::hub {

/// Name of the denoiser's folder in a folder of diffusers.
inline constexpr const char* kDenoiserFolder = "transformer";

/// Opens a model's weights under the names that models have here: a file, a folder, or the denoiser of a
/// folder of diffusers. Of FLUX the files of its authors too, whose rows become those of several tensors, and
/// files in 8 bits with a scale per tensor (`.scale_weight`, `.weight_scale`) or without. UserError for
/// scales of another kind, and for a tensor of the authors' that no model has.
io::WeightFiles open_weights(const fs::path& file_or_folder);

}  // namespace hearth::hub
