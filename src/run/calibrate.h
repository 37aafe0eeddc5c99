#pragma once

#include <map>
#include <string>

#include "nn/int8.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Choice of an activation's range: the one with the smallest mean squared rounding error, or all values.
enum class RangeChoice : uint8_t { smallest_error, min_max };

/// Evaluates the weights of an image run on the first `num_images` held-out images of the recipe, on the CPU
/// in f32, and returns the range of each activation that int8 arithmetic rounds
/// (nn::RoundedActivation::range). Throws a UserError if the data cannot be read.
std::map<std::string, nn::ActivationRange> calibrate(recipe::Recipe recipe, const fs::path& run,
                                                     int64_t num_images, RangeChoice choice);

}  // namespace hearth::run
