#include "run/picture_generator.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/denoiser_config.h"
#include "hub/model_folder.h"
#include "hub/open_weights.h"
#include "hub/weights.h"
#include "run/from_diffuse_recipe.h"
#include "run/from_recipe.h"

namespace hearth::run {
namespace {

constexpr const char* kRunRecipe = "config.yaml";
/// Rows of an evaluation of a model without text, which is small.
constexpr int64_t kMostRows = 64;
/// Of FLUX.1-dev, which is told it, and of FLUX.2 and DiT, which are asked twice.
constexpr double kUsualGuidance = 3.5, kComparingGuidance = 4;
constexpr int64_t kMostBytes = 1 << 22;

nlohmann::json read_json(const fs::path& file) {
  return parse_json_object<nlohmann::json>(read_file(file, kMostBytes), file.string());
}

/// The scheduler of a folder of diffusers; empty: it has none.
nlohmann::json scheduler_of(const fs::path& model) {
  const fs::path file = model / "scheduler/scheduler_config.json";
  return path_exists(file) ? read_json(file) : nlohmann::json::object();
}

/// What the folder of a model that is told by text says of how it is asked: its scheduler's shift, and a
/// guidance that suits it.
void take_up_text_model(const fs::path& model, const models::DenoiserConfig& config, recipe::Recipe& recipe) {
  recipe::Diffuse& diffuse = recipe.diffuse;
  diffuse.sampling = recipe::NoiseSampling::flux_shift;
  if (const auto scheduler = scheduler_of(model);
      !scheduler.empty() && !scheduler.value("use_dynamic_shifting", false)) {
    diffuse.sampling = recipe::NoiseSampling::shift;
    diffuse.shift = scheduler.value("shift", 1.0);
  }
  const bool is_flux2 = config.family == models::DenoiserConfig::Family::flux2;
  const bool compares = is_flux2 && !read_json(model / hub::kModelIndex).value("is_distilled", false);
  diffuse.guidance = config.guidance ? kUsualGuidance : compares ? kComparingGuidance : 1;
}

/// Of a model of classes: what it predicts.
void take_up_class_model(const fs::path& model, recipe::Recipe& recipe) {
  const auto scheduler = scheduler_of(model);
  const auto text = [&](const char* key, const char* otherwise) {
    const auto found = scheduler.find(key);
    return found != scheduler.end() && found->is_string() ? found->get<std::string>() : otherwise;
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
  recipe.diffuse.guidance = kComparingGuidance;
}

/// What reads prompts and makes pictures of latents is not in a file of FLUX's authors.
void refuse_lone_file(const fs::path& model, const fs::path& run) {
  if (!fs::is_regular_file(model)) return;
  user_error(
      "expected a model with text encoders and an autoencoder, but '{0}' was trained on '{1}' alone; try "
      "hearth generate FOLDER --adapter {0}, with the model's folder in diffusers' layout",
      run.string(), model.string());
}

/// The recipe of a run, or one that describes a folder of diffusers.
recipe::Recipe recipe_of(const fs::path& model, const PictureWish& wish) {
  recipe::Recipe recipe;
  if (path_exists(model / kRunRecipe)) {
    recipe = recipe::on_one_device(load_recipe(model / kRunRecipe, wish.overrides));
    if (recipe.adapter.wanted()) {
      refuse_lone_file(recipe.model.path, model);
      recipe.adapter.path = model.string();
    } else {
      recipe.model.config = (model / "config.json").string();
    }
  } else {
    recipe = parse_recipe("train: {objective: flow}\ndata: {kind: captions, path: .}\n", model.string(),
                          wish.overrides);
    recipe.model.path = model.string();
    const models::DenoiserConfig config = hub::denoiser_config(recipe.model);
    config.num_classes > 0 ? take_up_class_model(model, recipe) : take_up_text_model(model, config, recipe);
    recipe.data.image_size = usual_side(recipe);
  }
  if (!wish.adapter.empty()) recipe.adapter.path = wish.adapter.string();
  if (wish.size != Extent(0)) recipe.data.image_size = wish.size;
  if (wish.steps > 0) recipe.diffuse.steps = wish.steps;
  if (wish.guidance) recipe.diffuse.guidance = *wish.guidance;
  if (wish.threads > 0) recipe.threads = wish.threads;
  return recipe;
}

void load_weights(engine::Engine& engine, const recipe::Recipe& recipe, const fs::path& model) {
  if (hub::has_adapter(engine)) {
    hub::load_model(engine, recipe.model.path);
    hub::load_weights(engine, recipe.adapter.path);
  } else if (path_exists(model / kRunRecipe)) {
    hub::load_weights(engine, hub::run_weights(model, false));
  } else {
    hub::load_model(engine, model);
  }
}

/// The latents of all pictures; the denoiser's memory is given back.
std::vector<std::vector<float>> make_latents(const recipe::Recipe& recipe, const fs::path& model,
                                             const PictureWish& wish,
                                             const tasks::PictureMakerOptions& options,
                                             const tasks::Condition& condition) {
  engine::EngineOptions compiled = engine_options(recipe);
  compiled.accumulate = 1;
  compiled.optimizer.ema_decay = 0;
  engine::Engine engine(compiled, {}, std::span(&options.batch, 1));
  engine.initialize();
  load_weights(engine, recipe, model);
  const tasks::Noising noising(noising_options(recipe));
  tasks::PictureMaker maker(engine, noising, options);
  return maker.make(std::vector<tasks::Condition>(static_cast<size_t>(wish.count), condition), 0, wish.seed);
}

}  // namespace

bool makes_pictures(const fs::path& model) {
  if (path_exists(model / hub::kModelIndex)) return true;
  return path_exists(model / kRunRecipe) && recipe::makes_pictures(load_recipe(model / kRunRecipe));
}

std::vector<GeneratedPicture> generate_pictures(const fs::path& model, const PictureWish& wish) {
  const recipe::Recipe recipe = recipe_of(model, wish);
  tasks::PictureMakerOptions options = picture_options(recipe);
  options.batch = options.format.has_labels() ? std::min(wish.count, kMostRows) : 1;
  if (wish.solver) options.sampler.solver = *wish.solver;
  const bool is_flow = tasks::Noising(noising_options(recipe)).is_flow();
  if (is_flow != (options.sampler.solver == tasks::Solver::euler)) {
    user_error(
        "expected --solver {} for a model that was trained with objective {}, got another; try without",
        is_flow ? "euler" : "ddim or dpm", name_of(recipe.train.objective));
  }
  const auto translator = open_translator(recipe, model);
  const tasks::Condition condition = translator->conditions(std::span(&wish.prompt, 1)).front();
  if (options.compares()) options.unconditional = translator->no_condition();
  std::vector<GeneratedPicture> made;
  for (const std::vector<float>& latents : make_latents(recipe, model, wish, options, condition)) {
    GeneratedPicture one{
        .image = translator->picture(latents, options.latents), .settings = {}, .note = translator->note()};
    one.settings = {{"prompt", wish.prompt},
                    {"seed", std::to_string(wish.seed + made.size())},
                    {"steps", std::to_string(recipe.diffuse.steps)},
                    {"guidance", fmt::format("{}", recipe.diffuse.guidance)},
                    {"size", fmt::format("{}x{}", one.image.width, one.image.height)},
                    {"model", fs::absolute(model).filename().string()}};
    if (!wish.adapter.empty()) one.settings.emplace_back("adapter", wish.adapter.filename().string());
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace hearth::run
