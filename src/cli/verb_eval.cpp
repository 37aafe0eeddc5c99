#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "hub/adapter.h"
#include "infer/text_eval.h"
#include "recipe/recipe_file.h"
#include "run/evaluate_run.h"
#include "run/from_recipe.h"
#include "tasks/language/language_recipe.h"

namespace hearth::cli {
namespace {

struct EvalArguments {
  std::string run, base, report;
  bool exact_match = false;
  infer::MatchOptions match;
  bool json = false;
};

/// Returns a recipe for the evaluation of a model folder, which has no recipe.
recipe::Recipe recipe_of_model(const CLI::App& verb, const std::string& model) {
  recipe::Recipe recipe;
  recipe.model.path = ".";
  return recipe::with_overrides(std::move(recipe), fmt::format("hearth eval '{}'", model),
                                run::recipe_choices(), overrides_of(verb));
}

/// If data.path differs from that of the run, evaluates the full file, not the fraction that training would
/// hold out.
void evaluate_full_file(recipe::Recipe& recipe, const recipe::Recipe& trained) {
  const bool other = recipe.data.path != trained.data.path;
  if (other && recipe.data.val_path == trained.data.val_path) recipe.data.val_path = recipe.data.path;
}

infer::MatchResult match_questions(const recipe::Recipe& recipe, const hub::ModelFolder& model,
                                   infer::MatchOptions options) {
  if (recipe.data.val_path.empty())
    user_error("--exact-match needs a file of questions; set data=FILE.jsonl");
  options.num_threads = recipe::num_threads(recipe);
  return infer::match_answers(tasks::text_options(recipe), model, recipe.data.val_path, options);
}

void say_note(const std::string& text) { say(stderr, "{}\n", text); }

/// Prints the result as text, unless JSON is wanted, and returns it as JSON.
Json say_result(const run::WeightsEvaluation& found, const EvalArguments& arguments) {
  if (!arguments.json)
    say("{}: loss {:.4f}, {} ({} held out)\n", found.weights.string(), found.loss, found.text,
        found.num_rows);
  return {{"weights", found.weights.string()},
          {"loss", found.loss},
          {"metrics", Json(std::map<std::string, double>(found.metrics.begin(), found.metrics.end()))},
          {"rows", found.num_rows}};
}

void eval_text(recipe::Recipe recipe, const hub::ModelFolder& model, const EvalArguments& arguments) {
  if (!model.adapter.empty()) {
    recipe.model.path = model.model.string();
    recipe.adapter.path = model.adapter.string();
  }
  Json result = say_result(run::evaluate_model(recipe, model, say_note), arguments);
  if (arguments.exact_match) {
    const infer::MatchResult match = match_questions(recipe, model, arguments.match);
    result["exact_match"] = {{"right", match.num_right}, {"questions", match.num_questions}};
    if (!arguments.json)
      say("exact match {}/{} ({:.2f}%)\n", match.num_right, match.num_questions,
          100.0 * static_cast<double>(match.num_right) / static_cast<double>(match.num_questions));
  }
  if (arguments.json) print_json(result);
}

/// Evaluates a model folder or an adapter without a recipe.
void eval_model(const CLI::App& verb, const EvalArguments& arguments) {
  const hub::ModelFolder model = hub::find_model(arguments.run, arguments.base);
  recipe::Recipe recipe = recipe_of_model(verb, arguments.run);
  if (recipe.data.val_path.empty()) recipe.data.val_path = recipe.data.path;
  recipe.model.path = model.model.string();
  if (recipe.model.tokenizer.empty() && model.text != model.model)
    recipe.model.tokenizer = model.text.string();
  eval_text(std::move(recipe), model, arguments);
}

void run_eval(const CLI::App& verb, const EvalArguments& arguments) {
  const fs::path run = arguments.run;
  const bool has_model =
      is_gguf_file(run) || fs::exists(run / kModelConfig) || fs::exists(run / hub::kAdapterConfig);
  const bool is_model = has_model && !fs::exists(run / kRunRecipe);
  recipe::Recipe recipe = is_model ? recipe::Recipe() : open_run(arguments.run, overrides_of(verb));
  const bool is_text = is_model || tasks::task_of(recipe).evaluates_any_model;
  if (is_text && !arguments.report.empty())
    user_error("--report is for a run on images, but '{}' is a language model", run.string());
  if (is_model) return eval_model(verb, arguments);
  if (is_text) {
    evaluate_full_file(recipe, run::load_recipe(run / kRunRecipe));
    return eval_text(std::move(recipe), hub::find_model(run, arguments.base), arguments);
  }
  if (arguments.exact_match) {
    user_error(
        "--exact-match is for a language model that was not trained on preferences, but '{}' is another run",
        run.string());
  }
  const Json result =
      say_result(run::evaluate_run(std::move(recipe), run, say_note, arguments.report), arguments);
  if (arguments.json) print_json(result);
}

}  // namespace

void add_eval(CLI::App& app) {
  const auto arguments = std::make_shared<EvalArguments>();
  CLI::App* verb = app.add_subcommand(
      "eval", "Evaluate the best weights of a run (its last ones if it has no best), or a language model");
  verb->add_option("run", arguments->run, "Run folder, model folder or adapter")->required();
  verb->add_option("--base", arguments->base,
                   "Base model of an adapter (default: the one in adapter_config.json)");
  verb->add_flag(
      "--exact-match", arguments->exact_match,
      "Let a language model answer the questions in data=FILE and print the fraction of exact matches");
  verb->add_option("--limit", arguments->match.limit, "Max number of questions; 0: all")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  verb->add_option("-n,--max-tokens", arguments->match.max_tokens, "Max tokens of an answer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20).description("1 to 1048576"))
      ->capture_default_str();
  verb->add_option("--report", arguments->report,
                   "File for an HTML report of a run on images, with the figures of report.html");
  add_json(*verb, arguments->json);
  allow_overrides(*verb);
  set_example(*verb, "hearth eval MODEL data=FILE.jsonl");
  verb->callback([=] { run_eval(*verb, *arguments); });
}

}  // namespace hearth::cli
