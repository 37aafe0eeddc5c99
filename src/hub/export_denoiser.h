#pragma once

#include "hub/export.h"

namespace hearth::hub {

/// True if a path, which is no run, is a model that generates images: a diffusers folder or its denoiser's
/// folder, or a LoRA of such a model.
bool is_denoiser(const fs::path& given);

/// Finds the parts of a model that generates images. `base`: base model of a LoRA; empty: the one that the
/// adapter_config.json in the LoRA's folder names. Throws a UserError if the base model of a LoRA is unknown.
ModelFolder find_denoiser(const fs::path& given, const fs::path& base = {});

/// Writes a denoiser, merged with its LoRA, as a complete diffusers folder, or as config.json and weights if
/// the model has no other parts. Returns the number of tensors that the LoRA changed.
int64_t export_denoiser(const ModelFolder& model, const FolderOptions& options);

}  // namespace hearth::hub
