#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/run_files.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "recipe/recipe_file.h"
#include "run/capture_teacher.h"
#include "run/from_recipe.h"

namespace hearth::cli {
namespace {

struct CaptureArguments {
  std::string teacher, base, recipe, out;
  int64_t top_k = 64;
  bool json = false;
};

/// Returns the recipe whose data is captured: --recipe, otherwise the recipe of the teacher's run, otherwise
/// the defaults with the overrides.
recipe::Recipe recipe_of_data(const CaptureArguments& arguments, const std::vector<std::string>& overrides) {
  if (!arguments.recipe.empty()) return open_recipe(arguments.recipe, overrides);
  if (fs::exists(fs::path(arguments.teacher) / kRunRecipe)) return open_run(arguments.teacher, overrides);
  recipe::Recipe recipe;
  recipe.model.path = ".";
  return recipe::with_overrides(std::move(recipe), "hearth distill capture", run::recipe_choices(),
                                overrides);
}

void capture(const CLI::App& verb, const CaptureArguments& arguments) {
  const hub::ModelFolder teacher = hub::find_model(arguments.teacher, arguments.base);
  const auto say_note = [](const std::string& text) { say(stderr, "{}\n", text); };
  const run::CapturedTeacher found = run::capture_teacher(recipe_of_data(arguments, overrides_of(verb)),
                                                          teacher, arguments.top_k, arguments.out, say_note);
  if (arguments.json) {
    return print_json({{"file", found.file.string()},
                       {"top_k", found.top_k},
                       {"tokens", found.num_entries},
                       {"kept_tokens", found.num_kept}});
  }
  const std::string kept =
      found.num_kept > 0 ? fmt::format(" ({} of them by an earlier capture)", found.num_kept) : "";
  say("{}: the {} most likely tokens after each of {} tokens{}\n", found.file.string(), found.top_k,
      found.num_entries, kept);
  say("train a student: hearth train RECIPE distill.from={}\n", found.file.string());
}

}  // namespace

void add_distill(CLI::App& app) {
  const auto arguments = std::make_shared<CaptureArguments>();
  CLI::App* verb = app.add_subcommand("distill", "Prepare knowledge distillation");
  verb->require_subcommand(1);
  CLI::App* inner = verb->add_subcommand(
      "capture",
      "Write the most likely next tokens of a teacher on training data to a file, for distill.from");
  inner->add_option("teacher", arguments->teacher, "Teacher: run folder, model folder or adapter")
      ->required();
  inner->add_option("--recipe", arguments->recipe,
                    "Recipe of the student, for its data (default: the recipe of the teacher's run)");
  inner->add_option("--top-k", arguments->top_k, "Number of tokens per entry; each needs 6 bytes")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}).description("1 to 4096"))
      ->capture_default_str();
  inner->add_option("--base", arguments->base,
                    "Base model of an adapter (default: the one in adapter_config.json)");
  inner->add_option("--out", arguments->out, "File to write (default: a file in the token cache)");
  add_json(*inner, arguments->json);
  allow_overrides(*inner);
  set_example(*inner, "hearth distill capture TEACHER --recipe STUDENT.yaml");
  inner->callback([=] { capture(*inner, *arguments); });
}

}  // namespace hearth::cli
