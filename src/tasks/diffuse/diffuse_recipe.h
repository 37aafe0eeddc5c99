#pragma once

#include "recipe/recipe.h"
#include "tasks/diffuse/diffuse_task.h"
#include "tasks/job.h"

/// Converts a recipe's settings for image generation to options.
namespace hearth::tasks {

/// Values of data.kind: image-caption pairs, and image-caption pairs that kohya's sd-scripts encoded and
/// cached.
inline constexpr const char* kCaptions = "captions";
inline constexpr const char* kKohya = "kohya";

/// Returns the size of the latents of an image of data.image_size: the image size divided by the
/// autoencoder's factor (1 for a model that works on pixels, 8 if there is no autoencoder). Throws a
/// UserError for a side that is not a multiple of the model's patches.
Extent latents_of(const Job& job);
/// Returns the side in pixels of the square images for which the model was trained; 1024 if the model
/// supports any size.
int64_t native_side(const Job& job);

/// Returns options for generating images of data.image_size. The caller sets batch, unconditional and
/// row_length.
LatentGeneratorOptions generator_options(const Job& job);
/// Opens a codec, which encodes prompts and decodes images. `folder`: a run, or a model in diffusers' layout,
/// with the class names.
std::unique_ptr<DiffusionCodec> open_codec(const Job& job, const fs::path& folder);

}  // namespace hearth::tasks
