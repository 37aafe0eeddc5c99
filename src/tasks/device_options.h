#pragma once

#include "encoders/model_part.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// GPU number `device` of those that a recipe asks for, and which of its kernels are tried first.
exec::GpuWish gpu_of(const recipe::Recipe& recipe, int device);
/// Where a recipe has parts of models evaluated that it does not train: on GPU number `device` if it wants
/// GPUs.
encoders::Compute compute_of(const recipe::Recipe& recipe, int device);

}  // namespace hearth::tasks
