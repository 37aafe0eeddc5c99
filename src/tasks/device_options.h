#pragma once

#include "encoders/model_part.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Returns the request for GPU number `device` with the recipe's settings: memory to leave free, and whether
/// steps are recorded as GPU graphs.
exec::GpuRequest gpu_of(const recipe::Recipe& recipe, int device);
/// Returns the device that evaluates frozen parts of a model (autoencoder, text encoders): GPU number
/// `device` if the recipe uses GPUs, the CPU if not.
encoders::Compute compute_of(const recipe::Recipe& recipe, int device);

}  // namespace hearth::tasks
