#include "run/mask_numbers.h"

#include "base/file.h"
#include "data/masks/masks.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"

namespace hearth::run {
namespace {

bool has_mask_files(const recipe::Recipe& recipe) {
  return recipe.data.kind == "masks" && purpose_of(recipe) == Purpose::segment;
}

}  // namespace

std::vector<std::string> decide_mask_numbers(recipe::Recipe& recipe, const fs::path& run) {
  if (!has_mask_files(recipe) || !recipe.data.class_numbers.empty()) return {};
  if (const fs::path config = run / "config.yaml"; !run.empty() && path_exists(config)) {
    const recipe::Recipe trained = recipe::load_recipe(config, {});
    if (trained.data.path == recipe.data.path) recipe.data.class_numbers = trained.data.class_numbers;
    if (!recipe.data.class_numbers.empty()) return {};
  }
  data::MaskDecision decision =
      data::decide_masks(mask_options(recipe, "train"), mask_options(recipe, "test"));
  recipe.data.class_numbers = std::move(decision.class_numbers);
  if (recipe.model.num_classes == 0) {
    recipe.model.num_classes = std::ssize(decision.class_names);
    recipe.model.class_names = std::move(decision.class_names);
  }
  return std::move(decision.notes);
}

}  // namespace hearth::run
