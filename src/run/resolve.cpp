#include "run/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "engine/plan_builder.h"
#include "hub/normalization.h"
#include "planner/plan_report.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"
#include "tasks/image_teacher.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

/// Standard deviation of pixels in [0, 1] below which a channel counts as constant; its data.std is then 1.
constexpr double kMinStd = 1e-3;

/// Copies classes and normalization that the recipe does not set from `trained`, the run's config.yaml.
void copy_run_values(recipe::Recipe& recipe, const recipe::Recipe& trained) {
  if (recipe.model.num_classes == 0) recipe.model.num_classes = trained.model.num_classes;
  if (recipe.model.class_names.empty()) recipe.model.class_names = trained.model.class_names;
  if (recipe.data.normalize != recipe::Normalize::automatic ||
      trained.data.normalize != recipe::Normalize::given)
    return;
  recipe.data.mean = trained.data.mean;
  recipe.data.std = trained.data.std;
  recipe.data.normalize = recipe::Normalize::given;
}

void take_classes(recipe::Recipe& recipe) {
  recipe::Model& model = recipe.model;
  if (model.num_classes > 0) return;
  if (model.class_names.empty()) model.class_names = tasks::task_of(recipe).classes(recipe);
  model.num_classes = std::ssize(model.class_names);
  if (model.num_classes == 0)
    user_error("{}: the data has no class names; set model.num_classes", recipe.data.path.string());
}

/// Computes mean and standard deviation of each channel from pixel values of images.
class PixelStatistics {
 public:
  /// Adds an image. All images must have the same number of channels.
  void add(std::span<const uint8_t> pixels, size_t channels) {
    sums_.resize(channels);
    squares_.resize(channels);
    for (size_t i = 0; i + channels <= pixels.size(); i += channels) {
      for (size_t c = 0; c < channels; ++c) {
        sums_[c] += pixels[i + c];
        squares_[c] += uint64_t{pixels[i + c]} * pixels[i + c];
      }
      ++count_;
    }
  }
  /// Sets data.mean and data.std for pixels scaled to [0, 1], rounded to four digits.
  void write(recipe::Data& data) const {
    data.mean.clear();
    data.std.clear();
    const auto rounded = [](double value) { return static_cast<float>(std::round(value * 1e4) / 1e4); };
    for (size_t c = 0; c < sums_.size(); ++c) {
      const double count = 255 * static_cast<double>(std::max<uint64_t>(1, count_));
      const double mean = static_cast<double>(sums_[c]) / count;
      const double variance = static_cast<double>(squares_[c]) / (255 * count) - mean * mean;
      const double std = std::sqrt(std::max(0.0, variance));
      data.mean.push_back(rounded(mean));
      data.std.push_back(std < kMinStd ? 1.0F : rounded(std));
    }
  }

 private:
  std::vector<uint64_t> sums_, squares_;
  uint64_t count_ = 0;
};

std::string describe(const recipe::Data& data) {
  return fmt::format("mean [{}] and std [{}]", fmt::join(data.mean, ", "), fmt::join(data.std, ", "));
}

void measure_normalization(recipe::Recipe& recipe, const tasks::TaskDef& task,
                           std::vector<std::string>& notes) {
  PixelStatistics statistics;
  task.read_pixels(recipe, [&](std::span<const uint8_t> pixels, int64_t channels) {
    statistics.add(pixels, static_cast<size_t>(channels));
  });
  statistics.write(recipe.data);
  recipe.data.normalize = recipe::Normalize::given;
  notes.push_back("images are normalized by the training images' " + describe(recipe.data));
}

/// If the recipe's normalization differs from that of the `init` weights: uses the weights' normalization
/// (`adopts`), or only adds a note.
void adopt_normalization_of_weights(recipe::Recipe& recipe, bool adopts, std::vector<std::string>& notes) {
  if (recipe.init.empty() || recipe::data_kind(recipe.data.kind) == recipe::DataKind::tensors) return;
  const auto known = hub::known_normalization(recipe.init);
  recipe::Data& data = recipe.data;
  if (!known || hub::agree(*known, {.file = {}, .mean = data.mean, .std = data.std})) return;
  const auto fits = [&](const std::vector<float>& values) {
    return values.size() == 1 || std::ssize(values) == data.channels;
  };
  if (!fits(known->mean) || !fits(known->std)) return;
  const std::string before = describe(data);
  recipe::Data theirs = data;
  theirs.mean = known->mean;
  theirs.std = known->std;
  theirs.normalize = recipe::Normalize::given;
  if (adopts) data = theirs;
  notes.push_back(
      adopts ? fmt::format("init: images are normalized by {} of {} instead of {}; set data.normalize=given "
                           "to keep the recipe's",
                           describe(data), known->file.string(), before)
             : fmt::format("init: {} has another normalization, {}; set data.normalize=auto to use it",
                           known->file.string(), describe(theirs)));
}

/// Throws a UserError if the recipe has a teacher, but its task does not support distillation.
void check_teacher(const recipe::Recipe& recipe) {
  if (recipe.distill.from.empty() || tasks::task_of(recipe).distills) return;
  user_error(
      "distill.from is for classification, segmentation, detection and language models trained with "
      "cross-entropy, but this recipe's task is {}; remove it",
      tasks::task_of(recipe).name);
}

/// Throws a UserError unless the teacher of an image task, if any, fits the recipe. `names`: class names of
/// the recipe; empty: unknown.
void check_image_teacher(const tasks::Job& job, const std::vector<std::string>& names) {
  if (!job.image_teacher) return;
  const recipe::Recipe& recipe = job.recipe;
  const std::string_view task = tasks::task_of(recipe).name, theirs = tasks::task_of(*job.image_teacher).name;
  if (task != theirs) {
    user_error(
        "distill.from={}: the teacher was trained for task {}, but the recipe's task is {}; use a teacher "
        "that was trained for {}",
        recipe.distill.from, theirs, task, task);
  }
  tasks::check_image_teacher(recipe, *job.image_teacher, names);
}

/// Normalizes images as the teacher of an image task does. Throws a UserError if the recipe requires another
/// normalization.
void adopt_normalization_of_teacher(tasks::Job& job, std::vector<std::string>& notes) {
  if (!job.image_teacher || tasks::normalizes_alike(job.recipe, *job.image_teacher)) return;
  recipe::Data& data = job.recipe.data;
  const recipe::Data& theirs = job.image_teacher->data;
  const bool is_measured = recipe::data_kind(data.kind) != recipe::DataKind::tensors &&
                           recipe::data_kind(theirs.kind) != recipe::DataKind::tensors;
  if (data.normalize != recipe::Normalize::automatic || !is_measured)
    tasks::check_teacher_normalization(job.recipe, *job.image_teacher);
  data.mean = theirs.mean;
  data.std = theirs.std;
  data.normalize = recipe::Normalize::given;
  notes.push_back("images are normalized by the teacher's " + describe(data));
}

/// Fills in what the data determines. `trained`: recipe of the run that is continued, or null.
void fill_in_data_values(Resolved& made, const recipe::Recipe* trained) {
  recipe::Recipe& recipe = made.job.recipe;
  const tasks::TaskDef& task = tasks::task_of(recipe);
  if (trained && task.classes != nullptr) copy_run_values(recipe, *trained);
  if (task.fill_in != nullptr) made.notes = task.fill_in(recipe, trained);
  if (task.classes == nullptr) return;
  take_classes(recipe);
  if (made.job.image_teacher)
    check_image_teacher(made.job,
                        recipe.model.class_names.empty() ? task.classes(recipe) : recipe.model.class_names);
  if (recipe::data_kind(recipe.data.kind) == recipe::DataKind::shapes && !recipe.data.path.empty())
    made.notes.push_back(fmt::format("note: data.path={} is not read: data.kind=shapes generates its images",
                                     recipe.data.path.string()));
  if (task.read_pixels == nullptr) {
    if (recipe.data.normalize == recipe::Normalize::dataset)
      user_error(
          "data.normalize=dataset is for classification and segmentation; detectors have a fixed "
          "normalization; remove it");
    return;
  }
  if (recipe.data.normalize == recipe::Normalize::dataset) {
    measure_normalization(recipe, task, made.notes);
  } else if (!trained) {
    adopt_normalization_of_weights(recipe, recipe.data.normalize == recipe::Normalize::automatic, made.notes);
  }
  adopt_normalization_of_teacher(made.job, made.notes);
}

/// Returns a plan for the memory budget of the options, without packing.
engine::Plan plan_within_budget(engine::EngineOptions options, SavedActivations saved) {
  options.offload.saved = saved;
  return engine::measure_plan(options, std::span(&options.batch, 1), {});
}

/// Replaces saved_activations=auto by fp8 if the step does not fit the budget of `memory` with full, or is
/// faster with fp8; otherwise by full. `trained`: recipe of the run that is continued, or null.
void choose_saved_activations(tasks::Job& job, const recipe::Recipe* trained,
                              std::vector<std::string>& notes) {
  recipe::Recipe& recipe = job.recipe;
  using enum SavedActivations;
  if (recipe.saved_activations != automatic) return;
  recipe.saved_activations = full;
  if (trained != nullptr && trained->saved_activations != automatic) {
    recipe.saved_activations = trained->saved_activations;
    return;
  }
  if (recipe.memory == 0 || recipe.parallel == Parallel::pipeline) return;
  engine::EngineOptions options = engine_options(job);
  // No GPU driver may be opened before the workers are forked. Kernels of the CPU have similar workspaces.
  options.backend = exec::Backend::cpu;
  options.num_workers = 1;  // the choice must not depend on the number of workers
  const engine::Plan exact = plan_within_budget(options, full), rounded = plan_within_budget(options, fp8);
  const bool is_faster =
      planner::make_plan_report(rounded).time.seconds < planner::make_plan_report(exact).time.seconds;
  if (exact.recompute.fits && !is_faster) return;
  recipe.saved_activations = fp8;
  notes.push_back(
      fmt::format("saved_activations=fp8, because the step {}: {}",
                  exact.recompute.fits ? "is faster (modeled)" : "does not fit `memory` otherwise",
                  planner::describe(rounded.encoded)));
}

}  // namespace

Resolved resolve(tasks::Job job, const fs::path& run) {
  check_teacher(job.recipe);
  Resolved made{.job = std::move(job), .notes = {}};
  const fs::path config = run / kRunRecipe;
  std::optional<recipe::Recipe> trained;
  if (path_exists(config)) trained = recipe::load_recipe(config, {});
  fill_in_data_values(made, trained ? &*trained : nullptr);
  choose_saved_activations(made.job, trained ? &*trained : nullptr, made.notes);
  return made;
}

Resolved resolve_for_plan(tasks::Job job) {
  check_teacher(job.recipe);
  Resolved made{.job = std::move(job), .notes = {}};
  recipe::Recipe& recipe = made.job.recipe;
  const tasks::TaskDef& task = tasks::task_of(recipe);
  if (task.classes == nullptr || recipe.model.num_classes > 0) {
    check_image_teacher(made.job, recipe.model.class_names);
    return made;
  }
  const recipe::Data& data = recipe.data;
  if (recipe::data_kind(data.kind) == recipe::DataKind::shapes || path_exists(data.path)) {
    if (task.fill_in != nullptr) made.notes = task.fill_in(recipe, nullptr);
    take_classes(recipe);
    check_image_teacher(made.job, recipe.model.class_names);
    return made;
  }
  recipe.model.num_classes =
      made.job.image_teacher ? made.job.image_teacher->model.num_classes : task.planned_classes;
  check_image_teacher(made.job, {});
  made.notes.push_back(fmt::format(
      "planned for {} classes, because there is no data at '{}'; set data.path or model.num_classes",
      recipe.model.num_classes, data.path.string()));
  return made;
}

void take_class_names(recipe::Recipe& recipe, const tasks::Task& task) {
  std::vector<std::string>& names = recipe.model.class_names;
  std::vector<std::string> of_data = task.class_names();
  if (names.empty())
    names = std::move(of_data);
  else if (!of_data.empty() && of_data != names)
    user_error(
        "the classes of the data ({}) differ from model.class_names ({}); use the data that the run was "
        "trained with, or start a new run",
        fmt::join(of_data, ", "), fmt::join(names, ", "));
}

}  // namespace hearth::run
