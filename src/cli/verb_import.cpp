#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/yaml.h"
#include "cli/output.h"
#include "cli/verb.h"
#include "convert/import.h"
#include "run/from_recipe.h"
#include "run/launch.h"
#include "run/resolve.h"
#include "run/step_plan.h"
#include "tasks/task_def.h"

namespace hearth::cli {
namespace {

using convert::Fate;

/// Exit status if keys are refused, or if the written recipe is not valid.
constexpr int kIncomplete = 1;

struct ImportArguments {
  std::string file, out, tool;
  bool force = false, keys = false, json = false;
};

/// Returns the number of updates of a recipe; nullopt if its model or data cannot be read.
std::optional<int64_t> count_updates(const std::string& yaml, const std::string& out) {
  try {
    const run::Resolved resolved =
        run::resolve(tasks::Job(run::parse_recipe(yaml, "the imported recipe")), run::default_folder(out));
    const auto task = tasks::task_of(resolved.job.recipe).open(resolved.job, 0);
    run::StepPlan plan(resolved.job.recipe, *task);
    plan.count_steps({});
    return plan.total_steps();
  } catch (const UserError&) {
    return std::nullopt;
  }
}

void print_keys(const convert::Imported& imported) {
  size_t key_width = 0, value_width = 0;
  for (const convert::ImportedKey& key : imported.keys) {
    key_width = std::max(key_width, key.key.size());
    value_width = std::max(value_width, key.value.size());
  }
  value_width = std::min<size_t>(value_width, 30);
  for (const convert::ImportedKey& key : imported.keys) {
    say("  {:<{}}  {:<{}}  {:<16}  {}{}\n", key.key, key_width, key.value, value_width, fate_name(key.fate),
        key.detail, key.where.empty() ? " (not in the file)" : "");
  }
}

Json to_json(const std::vector<convert::ImportedKey>& keys) {
  Json json = Json::array();
  for (const convert::ImportedKey& key : keys) {
    json.push_back({{"key", key.key},
                    {"value", key.value},
                    {"fate", fate_name(key.fate)},
                    {"detail", key.detail},
                    {"where", key.where}});
  }
  return json;
}

void print_result(const convert::Imported& imported, const ImportArguments& arguments,
                  const std::string& out) {
  if (arguments.json) {
    return print_json({{"file", arguments.file},
                       {"tool", imported.tool},
                       {"out", out},
                       {"keys", to_json(imported.keys)},
                       {"fault", imported.fault}});
  }
  say("{}: {}\n", arguments.file, imported.tool);
  print_keys(imported);
  say("{} taken, {} equal by default, {} without effect, {} refused\nwrote {}\n", imported.count(Fate::taken),
      imported.count(Fate::equal), imported.count(Fate::no_effect), imported.count(Fate::refused), out);
}

void run_import(const CLI::App& verb, const ImportArguments& arguments) {
  if (arguments.keys) return say("{}", convert::describe_tools_in_markdown());
  if (arguments.file.empty())
    user_error("the config file is missing; use for example hearth import qlora.yml");
  const fs::path file = arguments.file;
  const std::string out = arguments.out.empty() ? file.stem().string() + "-hearth.yaml" : arguments.out;
  if (fs::exists(out)) user_error("{} exists already; choose another name with --out", out);
  convert::ImportOptions options{
      .choices = run::recipe_choices(), .tool = arguments.tool, .overrides = overrides_of(verb)};
  const std::string text = read_file(file, kMaxYamlBytes);
  convert::Imported imported = convert::import_config(text, file, options);
  if (imported.needs_updates && imported.fault.empty()) {
    options.updates = count_updates(imported.recipe, out);
    if (options.updates) imported = convert::import_config(text, file, options);
  }
  write_file_atomically(out, imported.recipe);
  print_result(imported, arguments, out);
  if (!imported.fault.empty()) say(stderr, "hearth: {}\n", imported.fault);
  const bool is_complete = imported.fault.empty() && (imported.count(Fate::refused) == 0 || arguments.force);
  exit_code() = is_complete ? 0 : kIncomplete;
}

}  // namespace

void add_import(CLI::App& app) {
  const auto arguments = std::make_shared<ImportArguments>();
  std::string tools;
  for (const std::string& title : convert::tool_titles()) tools += (tools.empty() ? "" : ", ") + title;
  CLI::App* verb = app.add_subcommand("import", "Convert the config of another training tool to a recipe");
  verb->add_option("file", arguments->file, "Config file: YAML, TOML or JSON");
  verb->add_option("--out", arguments->out, "Recipe to write (default: NAME-hearth.yaml in this folder)");
  verb->add_option("--tool", arguments->tool, "Tool (default: recognized by the keys): " + tools);
  verb->add_flag("--force", arguments->force, "Exit with status 0 even if keys are refused");
  CLI::Option* keys = verb->add_flag("--keys", arguments->keys,
                                     "Print the keys of all tools and their meaning as Markdown tables");
  add_json(*verb, arguments->json)->excludes(keys);
  allow_overrides(*verb);
  set_example(*verb, "hearth import qlora.yml model.path=MODEL data.path=FILE.jsonl");
  verb->callback([=] { run_import(*verb, *arguments); });
}

}  // namespace hearth::cli
