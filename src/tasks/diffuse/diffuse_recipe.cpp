#include "tasks/diffuse/diffuse_recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/process.h"
#include "base/run_files.h"
#include "base/text.h"
#include "data/captions/captions.h"
#include "encoders/image_coder.h"
#include "hub/open_weights.h"
#include "tasks/data_options.h"
#include "tasks/device_options.h"
#include "tasks/diffuse/captioned_images.h"
#include "tasks/task_def.h"

namespace hearth::tasks {
namespace {

/// Pixels per latent along each axis if there is no autoencoder to read the factor from.
constexpr int64_t kDefaultFactor = 8;
constexpr int64_t kDefaultSide = 1024;
constexpr const char* kAutoencoder = "vae";
constexpr int64_t kMaxIndexBytes = 1 << 22;

DenoiseFormat denoise_format(const Job& job) {
  return {.model = *job.denoiser, .text_tokens = job.recipe.diffuse.text_tokens};
}

/// Throws a UserError if adapter.targets names modules of FLUX.1 for a FLUX.2 model, or the reverse.
void check_targets(const recipe::Recipe& recipe, models::DenoiserConfig::Family family) {
  constexpr auto kFlux1 = std::to_array<std::string_view>(
      {"ff.net.0.proj", "ff.net.2", "ff_context.net.0.proj", "ff_context.net.2", "proj_mlp", "proj_out"});
  constexpr auto kFlux2 = std::to_array<std::string_view>(
      {"to_qkv_mlp_proj", "ff.linear_in", "ff.linear_out", "ff_context.linear_in", "ff_context.linear_out"});
  const bool is_first = family == models::DenoiserConfig::Family::flux;
  if (!recipe.adapter.wanted() || (!is_first && family != models::DenoiserConfig::Family::flux2)) return;
  const std::span<const std::string_view> others =
      is_first ? std::span<const std::string_view>(kFlux2) : kFlux1;
  const auto found = std::ranges::find_first_of(recipe.adapter.targets, others);
  if (found == recipe.adapter.targets.end()) return;
  user_error("adapter.targets has '{}', a module of FLUX.{}, but '{}' is a FLUX.{}; take the recipe {}",
             *found, is_first ? 2 : 1, recipe.model.path.empty() ? recipe.model.config : recipe.model.path,
             is_first ? 1 : 2, is_first ? "flux-lora" : "klein-lora");
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
  user_error("no folder for latents: neither data.cache nor HOME is set; set data.cache=DIR");
}

bool can_be_pixels(int64_t channels) { return channels == 1 || channels == 3; }

/// Returns the autoencoder's folder for a class-conditional model; empty if the model works on pixels.
fs::path autoencoder_of_classes(const recipe::Recipe& recipe, const models::DenoiserConfig& model) {
  fs::path folder = autoencoder_folder(recipe.model);
  if (folder.empty() && !can_be_pixels(model.channels))
    user_error("found no autoencoder for the model's latents of {} channels; try model.autoencoder=FOLDER",
               model.channels);
  return folder;
}

/// Returns the CPU as the device for encoders and decoders, because training needs the GPU's memory.
encoders::Compute on_processor(const recipe::Recipe& recipe) {
  encoders::Compute compute = tasks::compute_of(recipe, 0);
  compute.gpu.reset();
  return compute;
}

OpenAutoencoder autoencoder_opener(const Job& job, const fs::path& folder, const encoders::Compute& compute) {
  return [folder, compute, config = job.autoencoder, memory = job.recipe.memory] {
    return std::make_unique<encoders::ImageCoder>(folder, config, compute, memory);
  };
}

LatentSpace latent_space(const Job& job, int device, const fs::path& folder) {
  const recipe::Recipe& recipe = job.recipe;
  const models::DenoiserConfig& model = *job.denoiser;
  const encoders::ImageCoder coder(folder, job.autoencoder, on_processor(recipe), 0);
  coder.expect_channels(model.channels);
  latents_of(job);  // Throws for sizes that cannot be encoded.
  return {.open_encoder = autoencoder_opener(job, folder, compute_of(recipe, device)),
          .open_decoder = autoencoder_opener(job, folder, on_processor(recipe)),
          .hash = coder.hash(),
          .format = {.channels = model.channels, .factor = coder.factor(), .patch = model.patch},
          .pixels = recipe.data.image_size,
          .cache = cache_folder(recipe.data)};
}

std::unique_ptr<DiffusionData> open_labeled(const Job& job, int device) {
  const recipe::Recipe& recipe = job.recipe;
  const models::DenoiserConfig& model = *job.denoiser;
  LabeledImagesOptions options{.train = dataset_options(recipe, "train"),
                               .held_out = dataset_options(recipe, "test"),
                               .num_classes = model.num_classes,
                               .val_images = recipe.diffuse.val_images,
                               .flip = recipe.data.flip,
                               .seed = recipe.seed,
                               .num_threads = recipe::num_threads(recipe)};
  const fs::path folder = autoencoder_of_classes(recipe, model);
  if (!folder.empty()) options.space = latent_space(job, device, folder);
  return labeled_images(options);
}

TextCodecOptions translator_options(const Job& job, const encoders::Compute& compute) {
  const recipe::Recipe& recipe = job.recipe;
  const fs::path model = recipe.model.path;
  const fs::path autoencoder = autoencoder_folder(recipe.model);
  return {.model = model,
          .autoencoder = autoencoder.empty() ? model / kAutoencoder : autoencoder,
          .autoencoder_config = job.autoencoder,
          .text_tokens = recipe.diffuse.text_tokens,
          .compute = compute,
          .memory = recipe.memory};
}

std::shared_ptr<const DiffusionData> open_data(const Job& job, int device) {
  const recipe::Recipe& recipe = job.recipe;
  const DenoiseFormat format = denoise_format(job);
  const std::string& kind = recipe.data.kind;
  if (format.has_labels()) {
    if (kind == kCaptions || kind == kKohya)
      user_error(
          "expected data.kind folder, idx or cifar10 for a model of {} classes, got {}; try data.kind=folder",
          format.model.num_classes, kind);
    return open_labeled(job, device);
  }
  if (kind != kCaptions && kind != kKohya)
    user_error(
        "expected data.kind captions or kohya for a text-to-image model, got {}; try data.kind=captions",
        kind);
  if (kind == kKohya && recipe.diffuse.dropout > 0)
    user_error(
        "diffuse.dropout is {}, but the caches of data.kind=kohya lack the empty caption; set "
        "diffuse.dropout=0",
        recipe.diffuse.dropout);
  const CaptionedImagesOptions options{.data = recipe.data,
                                       .diffuse = recipe.diffuse,
                                       .cache = cache_folder(recipe.data),
                                       .format = format,
                                       .encoders = translator_options(job, on_processor(recipe)),
                                       .preparation = compute_of(recipe, device)};
  return kind == kKohya ? kohya_images(options) : captioned_images(options);
}

/// Pixels per latent along each axis (factor), and the number of pixels that image sides must be multiples
/// of.
struct Grain {
  int64_t factor = kDefaultFactor;
  int64_t multiple = 1;
};
Grain grain_of(const Job& job) {
  const models::DenoiserConfig& model = *job.denoiser;
  Grain grain;
  if (job.autoencoder) {
    grain = {.factor = job.autoencoder->factor(), .multiple = job.autoencoder->side_multiple()};
  } else if (model.num_classes > 0 && can_be_pixels(model.channels)) {
    grain.factor = 1;
  }
  grain.multiple = std::lcm(grain.multiple, grain.factor * model.patch);
  return grain;
}

/// Appends the names of class `label` to `classes`. `names`: comma-separated names, as in diffusers'
/// id2label.
void add_names(const std::string& names, int32_t label, std::vector<NamedClass>& classes) {
  for (size_t begin = 0, end = 0; end != names.npos; begin = end + 1) {
    end = names.find(',', begin);
    if (const std::string_view name = trimmed(std::string_view(names).substr(begin, end - begin));
        !name.empty())
      classes.push_back({.name = std::string(name), .label = label});
  }
}

/// Returns the class names in `file`, the model_index.json of a model folder in diffusers' layout.
std::vector<NamedClass> named_classes(const fs::path& file, int64_t num_classes) {
  std::vector<NamedClass> classes;
  const auto index =
      parse_json_object<nlohmann::ordered_json>(read_file(file, kMaxIndexBytes), file.string());
  const auto labels = index.find("id2label");
  if (labels == index.end() || !labels->is_object()) return classes;
  for (const auto& [number, names] : labels->items()) {
    int32_t label = -1;
    std::from_chars(number.data(), number.data() + number.size(), label);
    if (label < 0 || label >= num_classes || !names.is_string())
      user_error("{}: expected id2label to name classes 0 to {}, got \"{}\": {}", file.string(),
                 num_classes - 1, number, names.dump());
    add_names(names.get<std::string>(), label, classes);
  }
  return classes;
}

/// Returns the class names of a run or of a model folder in diffusers' layout. In a model folder, a class's
/// number is also one of its names.
std::vector<NamedClass> classes_in(const fs::path& folder, int64_t num_classes) {
  if (path_exists(folder / kClassNames)) return numbered(lines_of(folder / kClassNames));
  std::vector<NamedClass> classes = named_classes(folder / kModelIndex, num_classes);
  for (int32_t i = 0; i < num_classes; ++i) {
    const std::string number = std::to_string(i);
    if (std::ranges::find(classes, number, &NamedClass::name) == classes.end())
      classes.push_back({.name = number, .label = i});
  }
  return classes;
}

}  // namespace

Extent latents_of(const Job& job) {
  const Extent size = job.recipe.data.image_size;
  const auto [factor, step] = grain_of(job);
  if (size.height % step != 0 || size.width % step != 0)
    user_error("image sides must be multiples of {} pixels for this model, got {}x{}; try {}x{}", step,
               size.width, size.height, std::max(step, size.width / step * step),
               std::max(step, size.height / step * step));
  return {size.height / factor, size.width / factor};
}

int64_t native_side(const Job& job) {
  const models::DenoiserConfig& model = *job.denoiser;
  return model.side > 0 ? model.side * model.patch * grain_of(job).factor : kDefaultSide;
}

LatentGeneratorOptions generator_options(const Job& job) {
  LatentGeneratorOptions options{.format = denoise_format(job), .latents = latents_of(job)};
  options.sampler = sampler_for(Noising(job.recipe.train.objective, job.recipe.diffuse), options.format.model,
                                job.recipe.diffuse.steps, options.latents);
  options.guidance = job.recipe.diffuse.guidance;
  return options;
}

std::unique_ptr<DiffusionCodec> open_codec(const Job& job, const fs::path& folder) {
  const recipe::Recipe& recipe = job.recipe;
  const models::DenoiserConfig& model = *job.denoiser;
  if (model.num_classes == 0) return text_codec(translator_options(job, compute_of(recipe, 0)));
  const fs::path autoencoder = autoencoder_of_classes(recipe, model);
  ClassCodecOptions options{.classes = classes_in(folder, model.num_classes),
                            .num_classes = model.num_classes,
                            .channels = model.channels};
  if (!autoencoder.empty())
    options.open_autoencoder = autoencoder_opener(job, autoencoder, compute_of(recipe, 0));
  return class_codec(std::move(options));
}

namespace {

std::shared_ptr<const engine::Objective> denoiser_of(const Job& job) {
  if (job.recipe.adapter.path.empty()) check_targets(job.recipe, job.denoiser->family);
  return denoiser_objective({.format = denoise_format(job), .latents = latents_of(job)});
}

/// Decodes all images with captions, in data.path and in the folder of class images, and reports their number
/// and faults.
void check_captions(const recipe::Recipe& recipe, const DataReport& report) {
  if (recipe.data.bad_records == recipe::BadRecords::skip) return;
  const fs::path prior = recipe.diffuse.prior.empty() ? data::regularization_folder(recipe.data.path)
                                                      : fs::path(recipe.diffuse.prior);
  for (const fs::path& folder : {recipe.data.path, prior}) {
    if (folder.empty()) continue;
    const auto images = data::read_captions(folder, recipe.diffuse.trigger, recipe.data.exif,
                                            recipe.data.allow_outside, true);
    const data::ReadCheck check = data::check_captioned(images, recipe::num_threads(recipe));
    report.line(fmt::format("{}: {} images with captions: {}", folder.string(), images.size(),
                            data::describe_captions(images)));
    report.refuse(check.faults, std::ssize(images), "training");
  }
}

void check_images(const Job& job, const char* split, const DataReport& report) {
  const recipe::Recipe& recipe = job.recipe;
  if (recipe.data.kind == kKohya) return;
  if (recipe.data.kind != kCaptions) return check_labeled_images(recipe, split, report);
  // Captioned data has no separate test split, so it is checked once.
  if (split == std::string_view("train")) check_captions(recipe, report);
}

std::unique_ptr<Task> open(const Job& job, int device) {
  return std::make_unique<DiffuseTask>(DiffuseTaskOptions{.format = denoise_format(job),
                                                          .objective = job.recipe.train.objective,
                                                          .diffuse = job.recipe.diffuse,
                                                          .loader = loader_options(job.recipe),
                                                          .images = open_data(job, device),
                                                          .config = job.config_json});
}

}  // namespace

extern const TaskDef diffuse_task;
const TaskDef diffuse_task = {.name = "diffuse",
                              .owns = recipe::is_image_generation,
                              .objective = denoiser_of,
                              .open = open,
                              .check_images = check_images,
                              .model_format = ModelFormat::diffusers,
                              .generates = "images"};

}  // namespace hearth::tasks
