#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "models/model.h"
#include "recipe/key_help.h"
#include "run/from_recipe.h"
#include "run/launch.h"
#include "run/preview.h"
#include "tasks/detect/detector.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

struct ListArguments {
  bool keys = false, markdown = false, json = false;
};

void list_keys(const ListArguments& arguments) {
  const recipe::Choices& choices = run::recipe_choices();
  if (!arguments.json)
    return say("{}", arguments.markdown ? recipe::describe_keys_in_markdown(choices)
                                        : recipe::describe_keys(choices));
  Json json = Json::array();
  for (const recipe::KeyHelp& key : recipe::key_help(choices))
    json.push_back({{"key", key.name}, {"default", key.default_value}, {"doc", key.doc}});
  print_json({{"keys", json}});
}

/// Returns the first line of a recipe, a comment, without its "# ".
std::string doc_of(const BuiltInRecipe& recipe) {
  const std::string text = recipe.text;
  return text.substr(2, text.find('\n') - 2);
}

void print_list_as_json() {
  Json recipes = Json::array(), models = Json::array();
  for (const BuiltInRecipe& recipe : built_in_recipes())
    recipes.push_back({{"name", recipe.name}, {"doc", doc_of(recipe)}, {"text", recipe.text}});
  for (const models::ModelDef& model : models::model_list())
    models.push_back({{"name", model.name}, {"doc", model.doc}});
  for (const tasks::DetectorDef& model : tasks::detectors())
    models.push_back({{"name", model.name}, {"doc", model.doc}});
  print_json({{"recipes", recipes}, {"models", models}});
}

void run_ls(const ListArguments& arguments) {
  if (arguments.keys) return list_keys(arguments);
  if (arguments.json) return print_list_as_json();
  say("recipes (hearth cp NAME FILE.yaml copies one):\n");
  for (const BuiltInRecipe& recipe : built_in_recipes()) say("  {:<24} {}\n", recipe.name, doc_of(recipe));
  say("models:\n");
  for (const models::ModelDef& model : models::model_list()) say("  {:<24} {}\n", model.name, model.doc);
  for (const tasks::DetectorDef& model : tasks::detectors()) say("  {:<24} {}\n", model.name, model.doc);
  say("hearth ls --keys lists every key of a recipe\n");
}

struct CopyArguments {
  std::string name, file;
  bool json = false;
};

void run_cp(const CopyArguments& arguments) {
  const auto& [name, file, json] = arguments;
  if (fs::exists(file)) user_error("{} exists already; choose another name", file);
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    if (name != recipe.name) continue;
    write_file_atomically(file, recipe.text);
    if (json) return print_json({{"recipe", name}, {"out", file}});
    return say("wrote {}\n", file);
  }
  user_error("'{}' is no built-in recipe; hearth ls lists them", name);
}

struct ValidateArguments {
  std::string name, out, preview;
  bool json = false;
};

/// Performs the checks that training does at its start, and also reads every image. All text records are
/// checked first, because otherwise only the first bad one would be reported.
void run_validate(const CLI::App& verb, const ValidateArguments& arguments) {
  const auto& [name, out, preview, json] = arguments;
  if (!preview.empty()) check_writable_file(preview);
  const std::string folder = out.empty() ? run::default_folder(name) : out;
  run::Resolved prepared = run::resolve(tasks::Job(open_recipe(name, overrides_of(verb))), folder);
  const tasks::Job& job = prepared.job;
  const tasks::TaskDef& task = tasks::task_of(job.recipe);
  const tasks::DataReport report{
      .print = [file = json ? stderr : stdout](
                   const std::string& text) { std::fwrite(text.data(), 1, text.size(), file); },
      .has_colors = !json && isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr};
  const int64_t num_left_out = task.check_records == nullptr ? 0 : task.check_records(job, report);
  run::check_run_folder(folder, false);
  run::check_initial_weights(job);
  exit_code() = run::launch({.job = job,
                             .notes = prepared.notes,
                             .out = folder,
                             .only_checks = true,
                             .open_reporter = json ? open_error_terminal : open_terminal,
                             .print_error = print_error});
  if (exit_code() != 0) return;
  if (task.check_images != nullptr)
    for (const char* split : {"train", "test"}) task.check_images(job, split, report);
  if (!preview.empty()) {
    run::write_preview(job, preview);
    say(json ? stderr : stdout, "wrote {} with training samples as the model sees them\n", preview);
  }
  if (json)
    return print_json(
        {{"recipe", name}, {"model", recipe::model_name(job.recipe)}, {"skipped_records", num_left_out}});
  const std::string but = num_left_out == 0 ? ""
                                            : fmt::format("; {} bad record{} skipped", num_left_out,
                                                          num_left_out == 1 ? " is" : "s are");
  say("the recipe is well-formed{}\n", but);
}

}  // namespace

void add_ls(CLI::App& app) {
  const auto arguments = std::make_shared<ListArguments>();
  CLI::App* verb = app.add_subcommand("ls", "List built-in recipes and models");
  CLI::Option* all = verb->add_flag("--keys", arguments->keys, "List all recipe keys with their defaults");
  verb->add_flag("--markdown", arguments->markdown, "Print the keys as Markdown tables")->needs(all);
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth ls --keys");
  verb->callback([=] { run_ls(*arguments); });
}

void add_cp(CLI::App& app) {
  const auto arguments = std::make_shared<CopyArguments>();
  CLI::App* verb = app.add_subcommand("cp", "Copy a built-in recipe to a file");
  verb->add_option("recipe", arguments->name, "Name of the recipe, e.g. demo")->required();
  verb->add_option("file", arguments->file, "Output file")->required();
  add_json(*verb, arguments->json);
  set_example(*verb, "hearth cp demo mine.yaml");
  verb->callback([=] { run_cp(*arguments); });
}

void add_validate(CLI::App& app) {
  const auto arguments = std::make_shared<ValidateArguments>();
  CLI::App* verb =
      app.add_subcommand("validate", "Check the recipe, data and memory of a run before training");
  verb->add_option("recipe", arguments->name, "Recipe file or name")->required();
  verb->add_option("--out", arguments->out, "Run folder that training would use (default: runs/NAME)");
  verb->add_option("--preview", arguments->preview,
                   "Also write an HTML page of training samples, as the model sees them, to this file");
  add_json(*verb, arguments->json);
  allow_overrides(*verb);
  set_example(*verb, "hearth validate recipes/llama-lora.yaml model=MODEL data=FILE.jsonl");
  verb->callback([=] { run_validate(*verb, *arguments); });
}

}  // namespace hearth::cli
