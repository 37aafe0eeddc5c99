#include "cli/verb.h"

#include <filesystem>

#include "base/error.h"
#include "base/foreign.h"
#include "base/text.h"
#include "cli/hub.h"
#include "cli/output.h"
#include "run/from_recipe.h"

namespace hearth::cli {
namespace {

recipe::Recipe with_downloads(recipe::Recipe recipe) {
  download_named(recipe);
  return recipe;
}

/// Returns all flags of a command, including recipe keys as flags.
std::vector<std::string> flags_of(const CLI::App& verb) {
  std::vector<std::string> names;
  for (const std::string& key : recipe::recipe_keys()) names.push_back("--" + key);
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string file_of(const BuiltInRecipe& recipe) { return fmt::format("recipes/{}.yaml", recipe.name); }

}  // namespace

void set_example(CLI::App& verb, const std::string& line) {
  const std::string before = verb.get_footer();
  verb.footer(fmt::format("{}{}Example:\n  {}", before, before.empty() ? "" : "\n\n", line));
}

CLI::Option* add_json(CLI::App& verb, bool& json) { return verb.add_flag("--json", json, "Print JSON"); }

void add_requests(CLI::App& verb, bool& requests, const std::string& keys) {
  verb.add_flag(
      "--requests", requests,
      fmt::format("Read JSON objects with {} from standard input, one per line, and answer each with "
                  "a line of JSON, until the end of the input",
                  keys));
}

void add_former_name(CLI::App& verb, const std::string& former, CLI::Option& option) {
  const auto take = [former, &option](const std::string& value) {
    say(stderr, "{} is now {}\n", former, option.get_name());
    option.add_result(value);
    option.run_callback();
  };
  verb.add_option_function<std::string>(former, take)->group("");
}

void allow_overrides(CLI::App& verb) {
  verb.allow_extras();
  verb.footer(
      "Recipe keys can be appended, e.g. train.batch=64 or --train.batch 64. hearth ls --keys lists them.");
}

std::vector<std::string> overrides_of(const CLI::App& verb) {
  std::vector<std::string> overrides;
  const std::vector<std::string> extras = verb.remaining();
  for (size_t i = 0; i < extras.size(); ++i) {
    std::string text = extras[i];
    if (text.starts_with("--")) {
      text = text.substr(2);
      if (text.find('=') == std::string::npos) {
        if (i + 1 >= extras.size()) {
          user_error("unknown flag of hearth {}, or a flag without a value: --{}{}", verb.get_name(), text,
                     did_you_mean("--" + text, flags_of(verb)));
        }
        text += "=" + extras[++i];
      }
    }
    if (text.find('=') == std::string::npos)
      user_error("expected an override like train.batch=64, got '{}'", text);
    overrides.push_back(text);
  }
  return overrides;
}

const BuiltInRecipe* find_built_in(const std::string& name) {
  for (const BuiltInRecipe& recipe : built_in_recipes())
    if (name == recipe.name || name == file_of(recipe)) return &recipe;
  return nullptr;
}

recipe::Recipe open_recipe(const std::string& name, const std::vector<std::string>& overrides) {
  const bool is_folder = fs::is_directory(name);
  if (!is_folder && fs::exists(name)) return with_downloads(run::load_recipe(name, overrides));
  if (const BuiltInRecipe* recipe = find_built_in(name))
    return with_downloads(run::parse_recipe(recipe->text, file_of(*recipe), overrides));
  if (is_folder) {
    user_error(
        "expected a recipe file, got the folder '{}'; give data after a recipe: recipes/images-resnet18.yaml "
        "data.path={}",
        name, name);
  }
  std::vector<std::string> names;
  for (const BuiltInRecipe& recipe : built_in_recipes()) names.emplace_back(recipe.name);
  const std::string stem = fs::path(name).stem().string();
  user_error("there is no recipe file '{}'{}; hearth ls lists the built-in ones, hearth cp copies one", name,
             did_you_mean(stem, names));
}

recipe::Recipe open_run(const std::string& run, const std::vector<std::string>& overrides) {
  if (!fs::exists(run + "/config.yaml")) {
    const std::string advice =
        run.starts_with("runs/") ? "; ls runs lists the runs here" : download_advice(run);
    user_error("expected a run folder with config.yaml at '{}'{}", run, fs::exists(run) ? "" : advice);
  }
  return recipe::on_one_device(with_downloads(run::load_recipe(run + "/config.yaml", overrides)));
}

}  // namespace hearth::cli
