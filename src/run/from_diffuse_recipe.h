#pragma once

#include "recipe/recipe.h"
#include "tasks/diffuse/diffuse_task.h"

/// From recipes of models that make pictures to options, as from_recipe.h has it for the others.
namespace hearth::run {

/// Of data.kind: pictures with captions, and caches of them by kohya's sd-scripts.
inline constexpr const char* kCaptions = "captions";
inline constexpr const char* kKohya = "kohya";

/// UserError for a run of a model that makes pictures, where one that judges them is expected.
void refuse_pictures(const recipe::Recipe& recipe, const fs::path& run);

tasks::NoisingOptions noising_options(const recipe::Recipe& recipe);
/// Size of the latents of a picture of data.image_size: the picture's own where the denoiser has classes,
/// else what the autoencoder of model.path makes of it, or FLUX's.
Extent latents_of(const recipe::Recipe& recipe);
std::shared_ptr<const engine::Objective> denoiser_of(const recipe::Recipe& recipe);
/// The data opened. UserError where it does not go together with the model.
tasks::DiffuseTaskOptions diffuse_options(const recipe::Recipe& recipe);

/// How pictures of data.image_size are made; batch, unconditional and row_length are left.
tasks::PictureMakerOptions picture_options(const recipe::Recipe& recipe);
/// Prompts and pictures of a model in `folder`, a run or a folder of diffusers.
std::unique_ptr<tasks::PictureTranslator> open_translator(const recipe::Recipe& recipe,
                                                          const fs::path& folder);

}  // namespace hearth::run
