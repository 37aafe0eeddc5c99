#include "run/image_session.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "hub/model_folder.h"
#include "hub/open_weights.h"
#include "hub/weights.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"
#include "tasks/diffuse/diffuse_recipe.h"

namespace hearth::run {
namespace {

/// Max batch of a class-conditional model, which is small.
constexpr int64_t kMaxRows = 64;
/// Default guidance scale of models with a guidance embedding (FLUX.1-dev), and of models with
/// classifier-free guidance (FLUX.2, DiT), which run twice per sampling step: with and without the condition.
constexpr double kEmbeddedGuidance = 3.5, kClassifierFreeGuidance = 4;
constexpr int64_t kMaxConfigBytes = 1 << 22;

nlohmann::json read_json(const fs::path& file) {
  return parse_json_object<nlohmann::json>(read_file(file, kMaxConfigBytes), file.string());
}

/// Reads the scheduler configuration of a model folder in diffusers' layout; empty if it has none.
nlohmann::json scheduler_of(const fs::path& model) {
  const fs::path file = model / "scheduler/scheduler_config.json";
  return path_exists(file) ? read_json(file) : nlohmann::json::object();
}

/// Sets the timestep shift and the default guidance of a text-to-image model from the scheduler configuration
/// and model_index.json.
void set_text_model_defaults(const fs::path& model, const models::DenoiserConfig& config,
                             recipe::Recipe& recipe) {
  recipe::Diffuse& diffuse = recipe.diffuse;
  diffuse.sampling = recipe::NoiseSampling::flux_shift;
  if (const auto scheduler = scheduler_of(model);
      !scheduler.empty() && !scheduler.value("use_dynamic_shifting", false)) {
    diffuse.sampling = recipe::NoiseSampling::shift;
    diffuse.shift = scheduler.value("shift", 1.0);
  }
  const bool is_flux2 = config.family == models::DenoiserConfig::Family::flux2;
  const bool compares = is_flux2 && !read_json(model / kModelIndex).value("is_distilled", false);
  diffuse.guidance = config.guidance ? kEmbeddedGuidance : compares ? kClassifierFreeGuidance : 1;
}

/// Sets the objective, the timestep shift and the default guidance of a class-conditional model from the
/// scheduler configuration. Throws a UserError for an unsupported scheduler.
void set_class_model_defaults(const fs::path& model, recipe::Recipe& recipe) {
  const auto scheduler = scheduler_of(model);
  const auto text = [&](const char* key, const char* fallback) {
    const auto found = scheduler.find(key);
    return found != scheduler.end() && found->is_string() ? found->get<std::string>() : fallback;
  };
  const std::string predicts = text("prediction_type", "epsilon"), betas = text("beta_schedule", "linear");
  const bool is_flow = text("_class_name", "").starts_with("FlowMatch");
  if (!is_flow && ((predicts != "epsilon" && predicts != "v_prediction") || betas != "linear"))
    user_error("{}: expected prediction_type epsilon or v_prediction and beta_schedule linear, got {} and {}",
               (model / "scheduler/scheduler_config.json").string(), predicts, betas);
  recipe.train.objective = is_flow                 ? recipe::Objective::flow
                           : predicts == "epsilon" ? recipe::Objective::epsilon
                                                   : recipe::Objective::v;
  if (is_flow) {
    recipe.diffuse.sampling = recipe::NoiseSampling::shift;
    recipe.diffuse.shift = scheduler.value("shift", 1.0);
  }
  recipe.diffuse.guidance = kClassifierFreeGuidance;
}

/// Throws a UserError if the run's base model is a single weights file (original FLUX format): generation
/// also needs text encoders and an autoencoder, which only a folder in diffusers' layout contains.
void check_is_folder(const fs::path& model, const fs::path& run) {
  if (!fs::is_regular_file(model)) return;
  user_error(
      "'{0}' was trained on '{1}', a weights file without text encoders and autoencoder; use hearth generate "
      "FOLDER --adapter {0}, with the model's folder in diffusers' layout",
      run.string(), model.string());
}

/// Returns a job for a model folder in diffusers' layout.
tasks::Job job_of_folder(const fs::path& model, const fs::path& adapter,
                         std::span<const std::string> overrides) {
  recipe::Recipe recipe;
  recipe.train.objective = recipe::Objective::flow;
  recipe.data.kind = tasks::kCaptions;
  recipe.data.path = ".";
  recipe = recipe::with_overrides(std::move(recipe), model.string(), recipe_choices(), overrides);
  recipe.model.path = model.string();
  recipe.adapter.path = adapter.string();
  tasks::Job job(std::move(recipe));
  job.denoiser->num_classes > 0 ? set_class_model_defaults(model, job.recipe)
                                : set_text_model_defaults(model, *job.denoiser, job.recipe);
  job.recipe.data.image_size = tasks::native_side(job);
  return job;
}

tasks::Job job_of_run(const fs::path& run, const fs::path& adapter, std::span<const std::string> overrides) {
  recipe::Recipe recipe = recipe::on_one_device(load_recipe(run / kRunRecipe, overrides));
  if (recipe.adapter.wanted()) {
    check_is_folder(recipe.model.path, run);
    recipe.adapter.path = run.string();
  } else {
    recipe.model.config = (run / kModelConfig).string();
  }
  if (!adapter.empty()) recipe.adapter.path = adapter.string();
  return tasks::Job(std::move(recipe));
}

tasks::Job job_of(const fs::path& model, const ImageSessionOptions& options) {
  tasks::Job job = path_exists(model / kRunRecipe) ? job_of_run(model, options.adapter, options.overrides)
                                                   : job_of_folder(model, options.adapter, options.overrides);
  if (options.size != Extent(0)) job.recipe.data.image_size = options.size;
  if (options.threads > 0) job.recipe.threads = options.threads;
  return job;
}

}  // namespace

bool generates_images(const fs::path& model, const std::optional<recipe::Recipe>& trained) {
  return trained ? tasks::task_of(*trained).model_format == tasks::ModelFormat::diffusers
                 : path_exists(model / kModelIndex);
}

ImageSession::ImageSession(const fs::path& model, ImageSessionOptions options)
    : model_(model),
      options_(std::move(options)),
      job_(job_of(model_, options_)),
      noising_(job_.recipe.train.objective, job_.recipe.diffuse),
      maker_options_(tasks::generator_options(job_)),
      codec_(tasks::open_codec(job_, model_)) {
  maker_options_.batch = maker_options_.format.has_labels() ? std::min(options_.batch, kMaxRows) : 1;
}

tasks::LatentGeneratorOptions ImageSession::maker_options(const ImageRequest& request) const {
  tasks::LatentGeneratorOptions options = maker_options_;
  if (request.steps > 0)
    options.sampler = tasks::sampler_for(noising_, options.format.model, request.steps, options.latents);
  if (request.guidance) options.guidance = *request.guidance;
  if (request.solver) options.sampler.solver = *request.solver;
  if (noising_.is_flow() != (options.sampler.solver == tasks::Solver::euler)) {
    user_error("expected --solver {} for a model trained with objective {}; leave --solver out",
               noising_.is_flow() ? "euler" : "ddim or dpm", name_of(job_.recipe.train.objective));
  }
  return options;
}

tasks::Condition ImageSession::encode(const ImageRequest& request, tasks::LatentGeneratorOptions& options) {
  tasks::Condition condition = codec_->conditions(std::span(&request.prompt, 1)).front();
  notes_.emplace(request.prompt, codec_->note());
  if (options.compares()) options.unconditional = codec_->no_condition();
  return condition;
}

void ImageSession::load_weights() {
  if (hub::has_adapter(*engine_)) {
    hub::load_model(*engine_, job_.recipe.model.path);
    hub::load_weights(*engine_, job_.recipe.adapter.path);
  } else if (path_exists(model_ / kRunRecipe)) {
    hub::load_weights(*engine_, hub::run_weights(model_, false));
  } else {
    hub::load_model(*engine_, model_);
  }
}

engine::Engine& ImageSession::denoiser() {
  if (engine_) return *engine_;
  engine_ = engine::evaluation_engine(engine_options(job_), std::span(&maker_options_.batch, 1));
  engine_->initialize();
  load_weights();
  return *engine_;
}

std::vector<GeneratedImage> ImageSession::generate(const ImageRequest& request) {
  tasks::LatentGeneratorOptions options = maker_options(request);
  const std::vector<tasks::Condition> conditions(static_cast<size_t>(request.count),
                                                 encode(request, options));
  const auto all = tasks::LatentGenerator(denoiser(), noising_, options).make(conditions, 0, request.seed);
  if (!options_.keep_denoiser) engine_.reset();
  std::vector<GeneratedImage> made;
  for (const std::vector<float>& latents : all) {
    GeneratedImage one{
        .image = codec_->image(latents, options.latents), .settings = {}, .note = notes_.at(request.prompt)};
    one.settings = {{"prompt", request.prompt},
                    {"seed", std::to_string(request.seed + made.size())},
                    {"steps", std::to_string(options.sampler.steps)},
                    {"guidance", fmt::format("{}", options.guidance)},
                    {"size", fmt::format("{}x{}", one.image.width, one.image.height)},
                    {"model", fs::absolute(model_).filename().string()}};
    if (!options_.adapter.empty()) one.settings.emplace_back("adapter", options_.adapter.filename().string());
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace hearth::run
