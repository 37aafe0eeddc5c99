#pragma once

#include <memory>

#include "engine/objective.h"
#include "tasks/diffuse/denoise_rows.h"

namespace hearth::tasks {

struct DenoiserOptions {
  DenoiseFormat format;
  Extent latents = 0;  ///< latent size if all images have one size (row_length 0: no buckets)
};

/// Returns the training objective, the weighted squared error of a denoiser's prediction. The arrays of a
/// micro-batch are those of DenoiseRows. Output 0 of an evaluation is the prediction, f32 [N * T, features].
std::shared_ptr<const engine::Objective> denoiser_objective(DenoiserOptions options);

}  // namespace hearth::tasks
