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
/// Reads the config.json of a recipe's denoiser. For a weight file without one it is derived from the names
/// and shapes of the tensors of FLUX.1 or FLUX.2. UserError if the file is missing or the model is
/// unsupported.
DenoiserDescription describe_denoiser(const recipe::Model& model);

}  // namespace hearth::hub
