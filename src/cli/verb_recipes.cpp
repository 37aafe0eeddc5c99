#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "models/model.h"
#include "run/from_recipe.h"
#include "run/launch.h"
#include "tasks/detect/detector.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

void run_ls(bool keys, bool markdown) {
  if (keys) {
    const recipe::Choices& choices = run::recipe_choices();
    say("{}", markdown ? recipe::describe_keys_in_markdown(choices) : recipe::describe_keys(choices));
    return;
  }
  say("recipes (hearth cp NAME FILE.yaml copies one):\n");
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    const std::string text = recipe.text;
    say("  {:<24} {}\n", recipe.name, text.substr(2, text.find('\n') - 2));
  }
  say("models:\n");
  for (const models::ModelDef& model : models::model_list()) say("  {:<24} {}\n", model.name, model.doc);
  for (const tasks::DetectorDef& model : tasks::detectors()) say("  {:<24} {}\n", model.name, model.doc);
  say("hearth ls --keys lists every key of a recipe\n");
}

void run_cp(const std::string& name, const std::string& file) {
  if (fs::exists(file)) user_error("{} exists already; choose another name", file);
  for (const BuiltInRecipe& recipe : built_in_recipes()) {
    if (name != recipe.name) continue;
    write_file_atomically(file, recipe.text);
    say("wrote {}\n", file);
    return;
  }
  user_error("'{}' is no built-in recipe; hearth ls lists them", name);
}

/// Performs the checks that training does at its start, and also reads every image. All text records are
/// checked first, because otherwise only the first bad one would be reported.
void run_validate(const CLI::App& verb, const std::string& name, const std::string& out) {
  const std::string folder = out.empty() ? run::default_folder(name) : out;
  run::Resolved prepared = run::resolve(tasks::Job(open_recipe(name, overrides_of(verb))), folder);
  const tasks::Job& job = prepared.job;
  const tasks::TaskDef& task = tasks::task_of(job.recipe);
  const tasks::DataReport report{
      .print = [](const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); },
      .has_colors = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr};
  const int64_t num_left_out = task.check_records == nullptr ? 0 : task.check_records(job, report);
  run::check_run_folder(folder, false);
  run::check_initial_weights(job);
  exit_code() = run::launch({.job = job,
                             .notes = prepared.notes,
                             .out = folder,
                             .only_checks = true,
                             .open_reporter = open_terminal,
                             .print_error = print_error});
  if (exit_code() != 0) return;
  if (task.check_images != nullptr)
    for (const char* split : {"train", "test"}) task.check_images(job, split, report);
  const std::string but = num_left_out == 0 ? ""
                                            : fmt::format("; {} bad record{} skipped", num_left_out,
                                                          num_left_out == 1 ? " is" : "s are");
  say("the recipe is well-formed{}\n", but);
}

}  // namespace

void add_ls(CLI::App& app) {
  const auto keys = std::make_shared<bool>(false), markdown = std::make_shared<bool>(false);
  CLI::App* verb = app.add_subcommand("ls", "List built-in recipes and models");
  CLI::Option* all = verb->add_flag("--keys", *keys, "List all recipe keys with their defaults");
  verb->add_flag("--markdown", *markdown, "Print the keys as Markdown tables")->needs(all);
  set_example(*verb, "hearth ls --keys");
  verb->callback([=] { run_ls(*keys, *markdown); });
}

void add_cp(CLI::App& app) {
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* verb = app.add_subcommand("cp", "Copy a built-in recipe to a file");
  verb->add_option("recipe", names->first, "Name of the recipe, e.g. demo")->required();
  verb->add_option("file", names->second, "Output file")->required();
  set_example(*verb, "hearth cp demo mine.yaml");
  verb->callback([=] { run_cp(names->first, names->second); });
}

void add_validate(CLI::App& app) {
  const auto names = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* verb =
      app.add_subcommand("validate", "Check the recipe, data and memory of a run before training");
  verb->add_option("recipe", names->first, "Recipe file or name")->required();
  verb->add_option("--out", names->second, "Run folder that training would use (default: runs/NAME)");
  allow_overrides(*verb);
  set_example(*verb, "hearth validate recipes/llama-lora.yaml model=MODEL data=FILE.jsonl");
  verb->callback([=] { run_validate(*verb, names->first, names->second); });
}

}  // namespace hearth::cli
