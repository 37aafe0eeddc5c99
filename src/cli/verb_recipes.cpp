#include <fmt/format.h>

#include "base/error.h"
#include "cli/verb.h"
#include "models/model.h"
#include "train/plan_report.h"
#include "train/recipe.h"
#include "train/tensors_dataset.h"

namespace hearth::cli {
namespace {

void run_ls(bool keys) {
  if (keys) {
    fmt::print("{}", train::describe_keys());
    return;
  }
  fmt::print("recipes (hearth cp NAME FILE.yaml copies one):\n");
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    const std::string text = recipe.text;
    fmt::print("  {:<24} {}\n", recipe.name, text.substr(2, text.find('\n') - 2));
  }
  fmt::print("models:\n");
  for (const models::ModelDef& model : models::model_list())
    fmt::print("  {:<24} {}\n", model.name, model.doc);
  fmt::print("hearth ls --keys lists every key of a recipe\n");
}

void run_cp(const std::string& name, const std::string& file) {
  if (fs::exists(file)) user_error("{} exists already; choose another name", file);
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    if (name != recipe.name) continue;
    write_file_atomically(file, recipe.text);
    fmt::print("wrote {}\n", file);
    return;
  }
  user_error("'{}' is no built-in recipe; hearth ls lists them", name);
}

void check_split(data::DatasetOptions options, const train::Recipe& recipe, const char* split,
                 int64_t count) {
  options.split = split;
  options.count = count;
  const auto dataset = train::open_any_dataset(options, recipe.model.num_classes);
  fmt::print("{}: {} pictures of {}x{}x{}, {} classes\n", split, dataset->size(), dataset->image_size(),
             dataset->image_size(), dataset->channels(), dataset->class_names().size());
  if (dataset->holds_floats()) return;
  const data::DatasetCheck check = data::check_dataset(*dataset);
  for (size_t i = 0; i < check.per_class.size(); ++i) {
    fmt::print("  {:<20} {}\n", dataset->class_names()[i], check.per_class[i]);
  }
  for (const std::string& fault : check.faults) fmt::print("  bad: {}\n", fault);
  if (!check.faults.empty()) {
    user_error("{} of {} pictures of the {} split cannot be used", check.faults.size(), dataset->size(),
               split);
  }
}

void run_validate(const CLI::App& verb, const std::string& name) {
  const train::Recipe recipe = open_recipe(name, overrides_of(verb));
  check_split(recipe.data, recipe, "train", recipe.data.count);
  check_split(recipe.data, recipe, "test", recipe.val_count);
  fmt::print("{} at micro-batch {}:\n{}", train::model_name(recipe), recipe.batch,
             train::to_table(train::make_plan_report(train::engine_options(recipe))));
  fmt::print("the recipe is well-formed\n");
}

}  // namespace

void add_ls(CLI::App& app) {
  const auto keys = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("ls", "List recipes and models");
  verb->add_flag("--keys", *keys, "list every key of a recipe with its default");
  verb->callback([=] { run_ls(*keys); });
}

void add_cp(CLI::App& app) {
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* verb = app.add_subcommand("cp", "Copy a built-in recipe to a file of your own");
  verb->add_option("recipe", names->first, "name, for example demo")->required();
  verb->add_option("file", names->second, "file to write")->required();
  verb->callback([=] { run_cp(names->first, names->second); });
}

void add_validate(CLI::App& app) {
  const auto name = std::make_shared<std::string>();
  CLI::App* verb =
      app.add_subcommand("validate", "Check a recipe, its data and its memory before a long run");
  verb->add_option("recipe", *name, "recipe file")->required();
  allow_overrides(*verb);
  verb->callback([=] { run_validate(*verb, *name); });
}

}  // namespace hearth::cli
