#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace hearth::ui {

/// Returns the keys and values of a config.yaml in the order of the file, for example {"train.batch", "64"}.
/// Empty if the file is missing or damaged.
std::vector<std::pair<std::string, std::string>> read_recipe_keys(const fs::path& file);

/// Returns the name of the model in a config.yaml: model.name, or the last folder of model.path.
std::string model_name_in(const fs::path& file);

}  // namespace hearth::ui
