#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::cli {

/// Adds an example command line to the end of a command's help.
void set_example(CLI::App& verb, const std::string& line);

/// Adds the flag --json: the verb prints one JSON document to standard output, and notes to standard error.
/// Returns the flag.
CLI::Option* add_json(CLI::App& verb, bool& json);
/// Adds the flag --requests: the verb answers requests on standard input (answer_requests()). `keys`: the
/// keys of a request, for the help.
void add_requests(CLI::App& verb, bool& requests, const std::string& keys);

/// Accepts a former name of a flag, which the help does not list. When it is used, the current name is
/// printed.
void add_former_name(CLI::App& verb, const std::string& former, CLI::Option& option);

/// Accepts recipe overrides in any form: train.batch=64, --train.batch 64, --train.batch=64.
void allow_overrides(CLI::App& verb);
/// Returns the overrides on the command line as key=value. Throws a UserError for a flag without a value.
std::vector<std::string> overrides_of(const CLI::App& verb);

/// Reads a recipe with overrides: a file, or a built-in one by name ("demo", "recipes/demo.yaml"). Paths that
/// start with hf: are downloaded. Throws a UserError if there is no such recipe.
recipe::Recipe open_recipe(const std::string& name, const std::vector<std::string>& overrides);
/// Reads the recipe of a run folder, applies the overrides, and sets its number of devices to one.
recipe::Recipe open_run(const std::string& run, const std::vector<std::string>& overrides);
/// A recipe that is compiled into the program.
struct BuiltInRecipe {
  const char* name;  ///< "demo"
  const char* text;  ///< YAML; the first line is a comment that describes it
};
const std::vector<BuiltInRecipe>& built_in_recipes();
/// Returns the built-in recipe of a name such as "demo" or "recipes/demo.yaml"; null if there is none.
const BuiltInRecipe* find_built_in(const std::string& name);

/// Exit code of the process, set by a command; 0 by default.
int& exit_code();

}  // namespace hearth::cli
