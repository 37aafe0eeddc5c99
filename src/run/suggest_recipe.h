#pragma once

#include <string>
#include <vector>

#include "base/path.h"

namespace hearth::run {

/// A built-in recipe that trains on some data.
struct Suggestion {
  std::vector<std::string> found;      ///< what the data contains, a line each
  std::string recipe;                  ///< name of the recipe, "images-resnet18"
  std::vector<std::string> overrides;  ///< keys that connect it to the data, "data.path=PHOTOS"
  bool needs_model = false;            ///< true if the user has to add model=MODEL, the model to fine-tune
};

/// True if a path names training data rather than a recipe: a folder, or a file of texts or labels.
bool names_data(const fs::path& path);

/// Looks at the data with the readers that training uses, and chooses a recipe for it. UserError if there is
/// none, with the layouts that are known, or if the data has a fault.
Suggestion suggest_recipe(const fs::path& data);

}  // namespace hearth::run
