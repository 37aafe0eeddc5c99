#pragma once

#include "io/weight_files.h"

namespace hearth::hub {

/// Name of the denoiser subfolder in a diffusers folder.
inline constexpr const char* kDenoiserFolder = "transformer";

/// Opens the weights of a model and shows them under diffusers' or transformers' names. `file_or_folder`: a
/// file, a folder, or a diffusers folder (of which only the denoiser is opened). Also reads FLUX in its
/// original format (Black Forest Labs), whose fused tensors are split by rows, and fp8 files with one scale
/// per tensor (`.scale_weight`, `.weight_scale`) or without, GGUF files of language models (show_gguf), and
/// quantized checkpoints (show_dequantized). Throws a UserError for other kinds of scales and for unknown
/// tensors of the original format.
io::WeightFiles open_weights(const fs::path& file_or_folder);

}  // namespace hearth::hub
