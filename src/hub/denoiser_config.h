#pragma once

#include <string>

#include "models/denoiser/denoiser.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// A denoiser's config.json, in diffusers' keys, and its parsed values.
struct DenoiserDescription {
  std::string json;
  models::DenoiserConfig config;
};
/// Reads the config.json of a recipe's denoiser. For a single weight file without a config.json, derives the
/// config from the names and shapes of its tensors (FLUX.1 and FLUX.2 only). Throws a UserError if the file
/// is missing or the model is unsupported.
DenoiserDescription describe_denoiser(const recipe::Model& model);

}  // namespace hearth::hub
