#pragma once

#include "encoders/model_part.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Returns what to open for GPU number `device` of the recipe: memory to leave free and whether steps are
/// recorded.
exec::GpuRequest gpu_of(const recipe::Recipe& recipe, int device);
/// Returns the device that evaluates frozen parts of a model (autoencoder, text encoders): GPU number
/// `device` if the recipe uses GPUs, the CPU if not.
encoders::Compute compute_of(const recipe::Recipe& recipe, int device);

}  // namespace hearth::tasks
