#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output.h"
#include "base/run_files.h"
#include "cli/live_page.h"
#include "cli/output.h"
#include "cli/run_status.h"
#include "cli/terminal.h"
#include "cli/verb.h"
#include "hub/model_folder.h"
#include "run/launch.h"
#include "run/launched.h"
#include "run/suggest_recipe.h"
#include "supervise/worker.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

struct TrainArguments {
  std::string recipe;
  std::string out;
  bool resume = false;
  bool accept = false;
  bool accepts_changed_inputs = false;
  bool shows_page = false;
  std::string dump_gradients;
  bool json = false;
};

/// Returns the path or name of the recipe: the argument, or config.yaml of the resumed run.
std::string recipe_of(const TrainArguments& arguments) {
  if (arguments.resume && arguments.out.empty())
    user_error("--resume needs --out DIR, the folder of the run");
  if (!arguments.recipe.empty()) return arguments.recipe;
  if (!arguments.resume)
    user_error("expected a recipe or a folder of data, like hearth train demo or hearth train PHOTOS");
  std::string path = arguments.out + "/config.yaml";
  if (!fs::exists(path)) {
    user_error("there is no run to resume in '{}' (no config.yaml); try hearth train RECIPE --out {}",
               arguments.out, arguments.out);
  }
  return path;
}

/// Quotes a word for a POSIX shell, in single quotes unless all characters are plain.
std::string shell_word(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=:,+-@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == word.npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// Returns the shell line for these arguments.
std::string command_of(const TrainArguments& arguments, const std::vector<std::string>& overrides) {
  std::string line = "hearth train";
  if (!arguments.recipe.empty()) line += " " + shell_word(arguments.recipe);
  for (const std::string& override : overrides) {
    // The report shows this line, but the URL may be a secret.
    const bool is_secret = override.starts_with("log.webhook=http");
    line += " " + shell_word(is_secret ? "log.webhook=URL" : override);
  }
  if (arguments.resume) line += " --resume";
  if (!arguments.out.empty()) line += " --out " + shell_word(arguments.out);
  return line;
}

/// Uses config.json and tokenizer in the run folder if those of the recipe do not exist, as after a move to
/// another machine.
void use_run_folder(recipe::Recipe& recipe, const fs::path& run) {
  recipe::Model& model = recipe.model;
  if (tasks::task_of(recipe).model_format != tasks::ModelFormat::transformers) return;
  // An adapter needs the base model, not only its configuration.
  const bool has_config = !recipe.adapter.wanted() && fs::exists(run / kModelConfig);
  if (has_config && !fs::exists(model.config_file())) {
    model.path.clear();
    model.config = (run / kModelConfig).string();
  }
  const bool is_gone = !model.tokenizer.empty() && !fs::exists(model.tokenizer);
  if (is_gone && hub::has_tokenizer(run)) model.tokenizer = run.string();
}

/// Prints a description of the data and the command that trains on it, and replaces the data argument by that
/// recipe and its overrides. Returns false if the command is only printed.
bool suggest(TrainArguments& arguments, std::vector<std::string>& overrides) {
  const run::Suggestion suggestion = run::suggest_recipe(arguments.recipe);
  std::FILE* const out = arguments.json ? stderr : stdout;
  for (const std::string& line : suggestion.found) say(out, "{}: {}\n", arguments.recipe, line);
  // The user's overrides come last, because later overrides win.
  overrides.insert(overrides.begin(), suggestion.overrides.begin(), suggestion.overrides.end());
  const bool has_model = std::ranges::any_of(overrides, [](const std::string& key) {
    return key.starts_with("model=") || key.starts_with("model.path=");
  });
  if (suggestion.needs_model && !has_model) {
    if (arguments.accept)
      user_error("recipe {} fine-tunes a model; add model=MODEL, the folder of the model", suggestion.recipe);
    overrides.emplace_back("model=MODEL");
  }
  arguments.recipe = suggestion.recipe;
  const std::string command = command_of(arguments, overrides);
  say(out, "recipe that fits: {}\n\n  {}\n\n", arguments.recipe, command);
  if (arguments.accept) return true;
  if (arguments.json)
    print_json({{"recipe", arguments.recipe}, {"overrides", overrides}, {"command", command}});
  say(out,
      "Run this command to train, or add --yes to yours. hearth validate {} ... checks data and memory "
      "first.\n",
      arguments.recipe);
  return false;
}

/// Serves the live page of the folder that contains the run, in a separate process that ends with this one.
/// Prints the URL to `out`.
std::unique_ptr<supervise::Worker> start_page(const fs::path& run, std::FILE* out) {
  const fs::path runs = run.has_parent_path() ? run.parent_path() : ".";
  make_folder(runs);
  return std::make_unique<supervise::Worker>([&] {
    return print_error(run::exit_status_of([&] {
      serve_live_page(runs.string(), {.out = out});
      return 0;
    }));
  });
}

void run_train(const CLI::App& verb, TrainArguments arguments) {
  std::vector<std::string> overrides = overrides_of(verb);
  // Without a recipe, CLI11 parses the first override as the recipe: --resume --out DIR train.epochs=3.
  const bool is_override =
      arguments.resume && arguments.recipe.find('=') != std::string::npos && !fs::exists(arguments.recipe);
  if (is_override) overrides.insert(overrides.begin(), std::exchange(arguments.recipe, ""));
  if (!arguments.resume && find_built_in(arguments.recipe) == nullptr && run::names_data(arguments.recipe) &&
      !suggest(arguments, overrides))
    return;
  const std::string command = command_of(arguments, overrides);
  const std::string recipe_path = recipe_of(arguments);
  recipe::Recipe recipe = open_recipe(recipe_path, run::with_mpi_devices(std::move(overrides)));
  const std::string out = arguments.out.empty() ? run::default_folder(recipe_path) : arguments.out;
  if (arguments.resume) use_run_folder(recipe, out);
  // The reader of the output may exit before the run ends.
  std::signal(SIGPIPE, SIG_IGN);
  if (!arguments.dump_gradients.empty()) check_writable_file(arguments.dump_gradients);
  run::Resolved prepared = run::prepare_run(std::move(recipe), out, arguments.resume);
  const auto page = arguments.shows_page ? start_page(out, arguments.json ? stderr : stdout) : nullptr;
  exit_code() = run::launch({.job = std::move(prepared.job),
                             .notes = std::move(prepared.notes),
                             .out = out,
                             .resume = arguments.resume,
                             .command = command,
                             .accepts_changed_inputs = arguments.accepts_changed_inputs,
                             .dump_gradients = arguments.dump_gradients,
                             .open_reporter = arguments.json ? open_error_terminal : open_terminal,
                             .print_error = print_error});
  if (arguments.json) print_json(run_status(out));
}

/// Adds the flags that train and resume share.
void add_flags(CLI::App& verb, TrainArguments& arguments) {
  verb.add_flag("--accept-changed-inputs", arguments.accepts_changed_inputs,
                "Resume even if training data, tokenizer or base weights have changed");
  verb.add_flag("--ui", arguments.shows_page, "Show the run in the browser while it trains (hearth ui)");
  verb.add_option("--dump-gradients", arguments.dump_gradients,
                  "Output file for the gradients of the first micro-batch (safetensors)");
  add_json(verb, arguments.json);
  allow_overrides(verb);
}

}  // namespace

void add_train(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  CLI::App* verb = app.add_subcommand("train", "Train a model from a recipe and write a run folder");
  verb->add_option(
      "recipe", arguments->recipe,
      "Recipe, e.g. demo or recipes/demo.yaml; or data (folder or file): print the recipe for it");
  verb->add_option("--out", arguments->out, "Run folder (default: runs/NAME)");
  verb->add_flag("--resume", arguments->resume,
                 "Resume the run in --out from its newest complete checkpoint");
  verb->add_flag("--yes", arguments->accept, "With data instead of a recipe: train with the recipe for it");
  add_flags(*verb, *arguments);
  set_example(*verb, "hearth train recipes/llama-lora.yaml model=MODEL data=FILE.jsonl");
  verb->callback([=] { run_train(*verb, *arguments); });
}

void add_resume(CLI::App& app) {
  const auto arguments = std::make_shared<TrainArguments>();
  arguments->resume = true;
  CLI::App* verb = app.add_subcommand("resume", "Resume a run from its newest complete checkpoint");
  verb->add_option("run", arguments->out, "Run folder")->required();
  add_flags(*verb, *arguments);
  set_example(*verb, "hearth resume runs/demo train.epochs=9");
  verb->callback([=] { run_train(*verb, *arguments); });
}

}  // namespace hearth::cli
