#pragma once

#include <span>
#include <string>
#include <vector>

#include "recipe/choices.h"
#include "recipe/recipe.h"

namespace hearth::recipe {

/// Reads a recipe, then `overrides` of the form key=value, and checks everything that needs no files; names
/// by `choices`, which run/from_recipe.h has. Mistakes are UserErrors with FILE:LINE, and the nearest key
/// where one is unknown.
Recipe load_recipe(const fs::path& path, const Choices& choices, std::span<const std::string> overrides = {});
Recipe parse_recipe(const std::string& yaml, const std::string& where, const Choices& choices,
                    std::span<const std::string> overrides = {});
/// Applies overrides to a recipe that was not read from a file; sets defaults and checks the recipe as
/// load_recipe does. `where`: name of the recipe in messages.
Recipe with_overrides(Recipe recipe, const std::string& where, const Choices& choices,
                      std::span<const std::string> overrides);
/// Every key with its value; load_recipe reads it back to the same recipe.
std::string write_recipe(const Recipe& recipe);

/// Every key, those of a section side by side.
std::vector<std::string> recipe_keys();
/// One line per key: name, default, what it means.
std::string describe_keys(const Choices& choices);
/// The same as tables in Markdown, one for each section, and the names of other tools that are understood.
std::string describe_keys_in_markdown(const Choices& choices);

}  // namespace hearth::recipe
