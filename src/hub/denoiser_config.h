#pragma once

#include <string>

#include "models/denoiser/denoiser.h"
#include "recipe/recipe.h"

namespace hearth::hub {

/// The config.json of a recipe's denoiser, in diffusers' keys. Of a file of weights that comes without one it
/// is read from the names and shapes of its tensors, where they are those of FLUX.1 or FLUX.2. UserError
/// where neither says what the model is.
std::string denoiser_config_json(const recipe::Model& model);
models::DenoiserConfig denoiser_config(const recipe::Model& model);

}  // namespace hearth::hub
