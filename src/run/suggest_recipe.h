#pragma once

#include <string>
#include <vector>

#include "base/path.h"

namespace hearth::run {

/// A suggested built-in recipe for the user's data.
struct Suggestion {
  std::vector<std::string> found;      ///< lines that describe the data, for users
  std::string recipe;                  ///< name of the recipe, "images-resnet18"
  std::vector<std::string> overrides;  ///< overrides for the data, "data.path=PHOTOS"
  bool needs_model = false;            ///< true if the user must add model=MODEL
};

/// True if a path names training data rather than a recipe: a folder, or a file of texts or labels.
bool names_data(const fs::path& path);

/// Opens the data as training would, and chooses a recipe. Throws a UserError if the layout is unknown (the
/// message lists the supported layouts), or if the data has an error.
Suggestion suggest_recipe(const fs::path& data);

}  // namespace hearth::run
