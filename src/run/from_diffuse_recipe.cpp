#include "run/from_diffuse_recipe.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/process.h"
#include "hub/denoiser_config.h"
#include "infer/captioned_pictures.h"
#include "models/autoencoder/autoencoder.h"
#include "run/data_options.h"

namespace hearth::run {
namespace {

/// Pixels per latent of FLUX's autoencoders.
constexpr int64_t kUsualFactor = 8;

tasks::DenoiseFormat denoise_format(const recipe::Recipe& recipe) {
  return {.model = hub::denoiser_config(recipe.model), .text_tokens = recipe.diffuse.text_tokens};
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::istringstream in(read_file(file));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

fs::path cache_folder(const recipe::Data& data) {
  if (!data.cache.empty()) return data.cache;
  if (const fs::path folder = user_cache_folder(); !folder.empty()) return folder / "latents";
  user_error("expected a folder for latents, got neither data.cache nor HOME; try data.cache=DIR");
}

infer::TextTranslatorOptions translator_options(const recipe::Recipe& recipe, const fs::path& model) {
  return {.model = model,
          .text_tokens = recipe.diffuse.text_tokens,
          .num_threads = recipe::num_threads(recipe),
          .memory = recipe.memory};
}

std::shared_ptr<const tasks::PictureSet> open_pictures(const recipe::Recipe& recipe,
                                                       const tasks::DenoiseFormat& format) {
  const std::string& kind = recipe.data.kind;
  if (format.has_labels()) {
    if (kind == kCaptions || kind == kKohya)
      user_error(
          "expected data.kind folder, idx or cifar10 for a model of {} classes, got {}; try data.kind=folder",
          format.model.num_classes, kind);
    return tasks::labeled_pictures({.train = dataset_options(recipe, "train"),
                                    .held_out = dataset_options(recipe, "test"),
                                    .num_classes = format.model.num_classes,
                                    .flip = recipe.data.flip,
                                    .seed = recipe.seed,
                                    .num_threads = recipe::num_threads(recipe)});
  }
  if (kind != kCaptions && kind != kKohya)
    user_error(
        "expected data.kind captions or kohya for a model that is told by text, got {}; try "
        "data.kind=captions",
        kind);
  if (kind == kKohya && recipe.diffuse.dropout > 0)
    user_error(
        "expected diffuse.dropout=0 for data.kind=kohya, whose caches lack the empty caption, got {}; try "
        "diffuse.dropout=0",
        recipe.diffuse.dropout);
  const infer::CaptionedPicturesOptions options{.folder = recipe.data.path,
                                                .prior = recipe.diffuse.prior,
                                                .prior_weight = recipe.diffuse.prior_weight,
                                                .val_share = recipe.data.val_share,
                                                .resolution = recipe.data.image_size.longer(),
                                                .trigger = recipe.diffuse.trigger,
                                                .cache = cache_folder(recipe.data),
                                                .format = format,
                                                .encoders = translator_options(recipe, recipe.model.path)};
  return kind == kKohya ? infer::kohya_pictures(options) : infer::captioned_pictures(options);
}

int64_t pixels_per_latent(const recipe::Recipe& recipe, const models::DenoiserConfig& model) {
  if (model.num_classes > 0) return 1;
  const fs::path file = fs::path(recipe.model.path) / "vae/config.json";
  const bool has_one = !recipe.model.path.empty() && path_exists(file);
  return has_one ? models::read_autoencoder_config(file).factor() : kUsualFactor;
}

}  // namespace

void refuse_pictures(const recipe::Recipe& recipe, const fs::path& run) {
  if (recipe::makes_pictures(recipe))
    user_error(
        "expected a run that judges pictures, got '{0}', which makes them; try hearth generate {0} --prompt "
        "...",
        run.string());
}

tasks::NoisingOptions noising_options(const recipe::Recipe& recipe) {
  const recipe::Diffuse& diffuse = recipe.diffuse;
  return {.objective = recipe.train.objective,
          .sampling = diffuse.sampling,
          .mean = diffuse.mean,
          .std = diffuse.std,
          .shift = diffuse.shift,
          .mode_scale = diffuse.mode_scale,
          .weighting = diffuse.weighting,
          .min_snr = diffuse.min_snr};
}

Extent latents_of(const recipe::Recipe& recipe) {
  const Extent size = recipe.data.image_size;
  const models::DenoiserConfig model = denoise_format(recipe).model;
  const int64_t factor = pixels_per_latent(recipe, model), step = factor * model.patch;
  if (size.height % step != 0 || size.width % step != 0)
    user_error("expected sides that are multiples of {} pixels for this model, got {}x{}; try {}x{}", step,
               size.width, size.height, std::max(step, size.width / step * step),
               std::max(step, size.height / step * step));
  return {size.height / factor, size.width / factor};
}

std::shared_ptr<const engine::Objective> denoiser_of(const recipe::Recipe& recipe) {
  return tasks::denoiser_objective({.format = denoise_format(recipe), .latents = latents_of(recipe)});
}

tasks::DiffuseTaskOptions diffuse_options(const recipe::Recipe& recipe) {
  tasks::DiffuseTaskOptions options{.format = denoise_format(recipe),
                                    .noising = noising_options(recipe),
                                    .diffuse = recipe.diffuse,
                                    .loader = loader_options(recipe),
                                    .config = hub::denoiser_config_json(recipe.model)};
  options.pictures = open_pictures(recipe, options.format);
  return options;
}

tasks::PictureMakerOptions picture_options(const recipe::Recipe& recipe) {
  tasks::PictureMakerOptions options{.format = denoise_format(recipe), .latents = latents_of(recipe)};
  options.sampler = tasks::sampler_for(noising_options(recipe), options.format.model, recipe.diffuse.steps,
                                       options.latents);
  options.guidance = recipe.diffuse.guidance;
  return options;
}

std::unique_ptr<tasks::PictureTranslator> open_translator(const recipe::Recipe& recipe,
                                                          const fs::path& folder) {
  const models::DenoiserConfig model = denoise_format(recipe).model;
  if (model.num_classes == 0) return infer::text_translator(translator_options(recipe, recipe.model.path));
  return tasks::class_translator(lines_of(folder / tasks::kClassNames), model.num_classes, model.channels);
}

}  // namespace hearth::run
