#pragma once

#include <memory>

#include "engine/objective.h"
#include "tasks/diffuse/denoise_rows.h"

namespace hearth::tasks {

struct DenoiserOptions {
  DenoiseFormat format;
  Extent latents = 0;  ///< of rows whose length is 0
};

/// The weighted squared error of what a denoiser predicts, of the arrays of DenoiseRows. Evaluation's output
/// 0 is the prediction, f32 [N * T, features].
std::shared_ptr<const engine::Objective> denoiser_objective(DenoiserOptions options);

}  // namespace hearth::tasks
