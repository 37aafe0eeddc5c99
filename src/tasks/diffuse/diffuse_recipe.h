#pragma once

#include "recipe/recipe.h"
#include "tasks/diffuse/diffuse_task.h"

/// Options of image generation, from recipes.
namespace hearth::tasks {

/// Of data.kind: pictures with captions, and caches of them by kohya's sd-scripts.
inline constexpr const char* kCaptions = "captions";
inline constexpr const char* kKohya = "kohya";

NoisingOptions noising_options(const recipe::Recipe& recipe);
/// Size of the latents of a picture of data.image_size: what the autoencoder of the recipe makes of it, else
/// the picture's own where it is one of pixels, else an eighth. UserError for sides that it does not divide.
Extent latents_of(const recipe::Recipe& recipe);
/// Side in pixels of the squares that the model is made for, 1024 for one of any size.
int64_t usual_side(const recipe::Recipe& recipe);
std::shared_ptr<const engine::Objective> denoiser_of(const recipe::Recipe& recipe);
/// The data opened; what GPU number `device` may prepare is prepared there. UserError where it does not go
/// together with the model.
DiffuseTaskOptions diffuse_options(const recipe::Recipe& recipe, int device);

/// How pictures of data.image_size are made; batch, unconditional and row_length are left.
PictureMakerOptions picture_options(const recipe::Recipe& recipe);
/// Prompts and pictures of a model in `folder`, a run or a folder of diffusers.
std::unique_ptr<PictureTranslator> open_translator(const recipe::Recipe& recipe, const fs::path& folder);

}  // namespace hearth::tasks
