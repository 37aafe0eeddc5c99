#pragma once

#include "recipe/recipe.h"
#include "tasks/diffuse/diffuse_task.h"
#include "tasks/job.h"

/// Options of image generation in recipes.
namespace hearth::tasks {

/// Values of data.kind: image-caption pairs; caches of them by kohya's sd-scripts.
inline constexpr const char* kCaptions = "captions";
inline constexpr const char* kKohya = "kohya";

/// Returns the noise schedule that a recipe trains with.
NoisingOptions noising_options(const recipe::Recipe& recipe);
/// Returns the size of the latents of an image of data.image_size: divided by the factor of the autoencoder,
/// by 1 for a model of pixels, or by 8. UserError for a side that the model cannot divide into patches.
Extent latents_of(const Job& job);
/// Returns the side in pixels of the square images that the model was made for; 1024 if it takes any size.
int64_t native_side(const Job& job);

/// Returns how images of data.image_size are generated; batch, unconditional and row_length are left unset.
LatentGeneratorOptions generator_options(const Job& job);
/// Opens the encoders of prompts and the decoder of images. `folder`: a run, or a model in diffusers' layout.
std::unique_ptr<DiffusionCodec> open_codec(const Job& job, const fs::path& folder);

}  // namespace hearth::tasks
