#pragma once

#include "hub/export.h"

namespace hearth::hub {

/// Whether a path is of a model that makes pictures: a folder of diffusers or of its denoiser, a run, or a
/// LoRA of one.
bool is_denoiser(const fs::path& given);

/// The parts of such a model; of a LoRA the model that it is for is `base`, or else what adapter_config.json
/// beside it names. UserError where nobody says it.
ModelFolder find_denoiser(const fs::path& given, const fs::path& base = {});

/// Writes a denoiser, merged with its LoRA: a folder of diffusers with all of its parts, or config.json and
/// weights where the model has no other parts. Returns how many tensors the LoRA changed.
int64_t export_denoiser(const ModelFolder& model, const FolderOptions& options);

}  // namespace hearth::hub
