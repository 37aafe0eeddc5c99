#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::cli {

/// Ends a verb's help with a command line that works.
void set_example(CLI::App& verb, const std::string& line);

/// Lets a verb take a flag by its former name, which says the present one.
void add_former_name(CLI::App& verb, const std::string& former, CLI::Option& option);

/// Lets a verb take recipe overrides in any form: train.batch=64, --train.batch 64, --train.batch=64.
void allow_overrides(CLI::App& verb);
/// Those given, as key=value. UserError for a flag without a value.
std::vector<std::string> overrides_of(const CLI::App& verb);

/// Reads a recipe with its overrides: a file, or a built-in one by name ("demo", "recipes/demo.yaml").
recipe::Recipe open_recipe(const std::string& name, const std::vector<std::string>& overrides);
/// The recipe of a run in its folder, with overrides, on one device.
recipe::Recipe open_run(const std::string& run, const std::vector<std::string>& overrides);
/// Names and texts of the recipes compiled into the program.
struct BuiltInRecipe {
  const char* name;
  const char* text;
};
const std::vector<BuiltInRecipe>& built_in_recipes();
/// Returns the built-in recipe of a name such as "demo" or "recipes/demo.yaml"; null if there is none.
const BuiltInRecipe* find_built_in(const std::string& name);

/// Exit code that the last verb asked for (0 unless set).
int& exit_code();

}  // namespace hearth::cli
