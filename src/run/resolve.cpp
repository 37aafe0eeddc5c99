#include "run/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "hub/normalization.h"
#include "recipe/recipe_file.h"
#include "run/data_options.h"
#include "run/from_recipe.h"
#include "run/mask_numbers.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/spread.h"

namespace hearth::run {
namespace {

constexpr int64_t kMaxMeasured = 4096;
/// Standard deviation below which a channel counts as constant.
constexpr double kMinStd = 1e-3;

bool is_of_images(Purpose purpose) { return purpose != Purpose::text && purpose != Purpose::diffuse; }

/// Copies values that the recipe leaves open from the run's config.yaml.
void keep_trained(recipe::Recipe& recipe, const recipe::Recipe& trained) {
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
  if (model.class_names.empty()) model.class_names = classes_of_data(recipe);
  model.num_classes = std::ssize(model.class_names);
  if (model.num_classes == 0)
    user_error("{}: the data names no classes; set model.num_classes", recipe.data.path.string());
}

/// Accumulates sums and squares of pixel values for each channel.
class PixelStatistics {
 public:
  explicit PixelStatistics(int64_t channels)
      : sums_(static_cast<size_t>(channels)), squares_(static_cast<size_t>(channels)) {}

  void add(const std::vector<uint8_t>& pixels) {
    const size_t channels = sums_.size();
    for (size_t i = 0; i + channels <= pixels.size(); i += channels) {
      for (size_t c = 0; c < channels; ++c) {
        sums_[c] += pixels[i + c];
        squares_[c] += uint64_t{pixels[i + c]} * pixels[i + c];
      }
      ++count_;
    }
  }
  /// Sets mean and standard deviation of values in [0, 1], rounded to four digits.
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

PixelStatistics measure_labeled(const recipe::Recipe& recipe) {
  const auto dataset = tasks::open_any_dataset(dataset_options(recipe, "train"), recipe.model.num_classes);
  if (dataset->holds_floats())
    user_error("data.normalize=dataset is for images, but data.kind=tensors is used as it is; leave it out");
  PixelStatistics statistics(dataset->channels());
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset->image_size().num_pixels() * dataset->channels()));
  int32_t label = 0;
  for (const int64_t index : tasks::spread(kMaxMeasured, dataset->size())) {
    dataset->read(index, pixels.data(), &label);
    statistics.add(pixels);
  }
  return statistics;
}

PixelStatistics measure_masked(const recipe::Recipe& recipe) {
  const auto images = data::open_masks(mask_options(recipe, "train"));
  PixelStatistics statistics(3);
  data::Image image, mask;
  for (const int64_t index : tasks::spread(kMaxMeasured, images->size())) {
    images->read(index, image, mask);
    statistics.add(image.pixels);
  }
  return statistics;
}

std::string describe(const recipe::Data& data) {
  return fmt::format("mean [{}] and std [{}]", fmt::join(data.mean, ", "), fmt::join(data.std, ", "));
}

void measure_normalization(recipe::Recipe& recipe, Purpose purpose, std::vector<std::string>& notes) {
  (purpose == Purpose::segment ? measure_masked(recipe) : measure_labeled(recipe)).write(recipe.data);
  recipe.data.normalize = recipe::Normalize::given;
  notes.push_back("images are normalized by the training images' " + describe(recipe.data));
}

/// Uses the normalization of the `init` weights, or adds a note if the recipe keeps other values.
void compare_with_weights(recipe::Recipe& recipe, bool takes, std::vector<std::string>& notes) {
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
  if (takes) data = theirs;
  notes.push_back(takes
                      ? fmt::format("init: images are normalized by {}, as {} states, in place of {}; "
                                    "data.normalize=given keeps the recipe's",
                                    describe(data), known->file.string(), before)
                      : fmt::format("init: {} states another normalization, {}; data.normalize=auto takes it",
                                    known->file.string(), describe(theirs)));
}

}  // namespace

Resolved resolve(recipe::Recipe recipe, const fs::path& run) {
  Resolved made{.recipe = std::move(recipe), .notes = {}};
  const Purpose purpose = purpose_of(made.recipe);
  if (!is_of_images(purpose)) return made;
  const fs::path config = run / "config.yaml";
  const bool is_new = !path_exists(config);
  if (!is_new) keep_trained(made.recipe, recipe::load_recipe(config, {}));
  made.notes = decide_mask_numbers(made.recipe, run);
  take_classes(made.recipe);
  const recipe::Data& data = made.recipe.data;
  if (recipe::data_kind(data.kind) == recipe::DataKind::shapes && !data.path.empty())
    made.notes.push_back(fmt::format("note: data.path={} is not read: data.kind=shapes generates its images",
                                     data.path.string()));
  if (purpose == Purpose::detect) {
    if (made.recipe.data.normalize == recipe::Normalize::dataset)
      user_error(
          "data.normalize=dataset is for classes and masks: detectors have a normalization; leave it out");
    return made;
  }
  if (made.recipe.data.normalize == recipe::Normalize::dataset) {
    measure_normalization(made.recipe, purpose, made.notes);
  } else if (is_new) {
    compare_with_weights(made.recipe, made.recipe.data.normalize == recipe::Normalize::automatic, made.notes);
  }
  return made;
}

Resolved resolve_for_plan(recipe::Recipe recipe) {
  check_config_file(recipe);
  Resolved made{.recipe = std::move(recipe), .notes = {}};
  const Purpose purpose = purpose_of(made.recipe);
  if (!is_of_images(purpose) || made.recipe.model.num_classes > 0) return made;
  const recipe::Data& data = made.recipe.data;
  if (recipe::data_kind(data.kind) == recipe::DataKind::shapes || path_exists(data.path)) {
    made.notes = decide_mask_numbers(made.recipe, {});
    take_classes(made.recipe);
    return made;
  }
  // Default numbers of classes: COCO for detection, PASCAL VOC for segmentation, ImageNet for classification.
  made.recipe.model.num_classes = purpose == Purpose::detect ? 80 : purpose == Purpose::segment ? 21 : 1000;
  made.notes.push_back(fmt::format(
      "planned for {} classes, because there is no data at '{}'; set data.path or model.num_classes",
      made.recipe.model.num_classes, data.path.string()));
  return made;
}

void take_class_names(recipe::Recipe& recipe, const tasks::Task& task) {
  std::vector<std::string>& names = recipe.model.class_names;
  std::vector<std::string> of_data = task.class_names();
  if (names.empty())
    names = std::move(of_data);
  else if (!of_data.empty() && of_data != names)
    user_error(
        "the classes of the data ({}) are not those of model.class_names ({}); use the data that the run "
        "was trained with, or train another",
        fmt::join(of_data, ", "), fmt::join(names, ", "));
}

}  // namespace hearth::run
