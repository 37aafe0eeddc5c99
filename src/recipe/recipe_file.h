#pragma once

#include <span>
#include <string>
#include <vector>

#include "recipe/choices.h"
#include "recipe/recipe.h"

namespace hearth::recipe {

/// Reads a recipe and applies `overrides` of the form key=value; of overrides with the same key the last one
/// counts. Then sets values that depend on other keys and runs all checks that need no files. `choices`:
/// allowed names (run::recipe_choices()). Throws a UserError with FILE:LINE, and the most similar key for an
/// unknown one.
Recipe load_recipe(const fs::path& path, const Choices& choices, std::span<const std::string> overrides = {});
Recipe parse_recipe(const std::string& yaml, const std::string& where, const Choices& choices,
                    std::span<const std::string> overrides = {});
/// Applies overrides to a recipe that was not read from a file; sets defaults and checks the recipe as
/// load_recipe does. `where`: name of the recipe in messages.
Recipe with_overrides(Recipe recipe, const std::string& where, const Choices& choices,
                      std::span<const std::string> overrides);
/// Returns the text of a YAML file with all keys and values, from which load_recipe() reads the same recipe.
std::string write_recipe(const Recipe& recipe);

/// Returns the names of all keys, grouped by section.
std::vector<std::string> recipe_keys();
/// Returns a line per key: name, default, description.
std::string describe_keys(const Choices& choices);
/// Returns the keys as Markdown tables, one per section, and a table of the accepted names of other tools.
std::string describe_keys_in_markdown(const Choices& choices);

}  // namespace hearth::recipe
