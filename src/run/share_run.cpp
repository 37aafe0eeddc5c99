#include "run/share_run.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/text.h"
#include "base/version.h"
#include "hub/adapter.h"
#include "hub/model_folder.h"
#include "net/hub_cache.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"
#include "tasks/task_def.h"

namespace hearth::run {
namespace {

using Json = nlohmann::ordered_json;

/// Returns hf:ORG/NAME@COMMIT for a path in the hub's cache, and the file name for any other path.
std::string shared_path(const fs::path& path) {
  if (path.empty() || net::is_hub_name(path.string())) return path.string();
  if (const auto name = net::hub_name_of_snapshot(path)) return name->text();
  const fs::path normal = fs::absolute(path).lexically_normal();
  return (normal.has_filename() ? normal : normal.parent_path()).filename().string();
}

/// Returns the repository on the hub to which a path belongs; empty if it belongs to none.
std::string repo_of(const fs::path& path) {
  const auto name = path.empty() ? std::nullopt : net::hub_name_of_snapshot(path);
  return name ? name->repo : "";
}

recipe::Recipe shared_recipe(recipe::Recipe recipe) {
  for (std::string* path :
       {&recipe.model.path, &recipe.model.config, &recipe.model.autoencoder, &recipe.model.tokenizer,
        &recipe.adapter.path, &recipe.init, &recipe.data.val_path, &recipe.data.classes, &recipe.distill.from,
        &recipe.diffuse.prior, &recipe.data.cache})
    *path = shared_path(*path);
  recipe.data.path = shared_path(recipe.data.path);
  recipe.log.webhook.clear();  // may contain a secret
  return recipe;
}

/// Returns the value of a key in the YAML header of a base model's README.md; empty if it has none.
std::string card_value(const fs::path& model, const std::string& key) {
  const fs::path readme = model / "README.md";
  if (model.empty() || !path_exists(readme)) return "";
  const std::string card = read_file(readme);
  std::string_view rest = card;
  if (trimmed(take_line(rest)) != "---") return "";
  while (!rest.empty()) {
    const std::string_view line = without_blank_end(take_line(rest));
    if (line == "---") return "";
    if (!line.starts_with(key + ":")) continue;
    const std::string value(trimmed(line.substr(key.size() + 1)));
    const bool is_plain =
        value.find_first_of("#\"'\\{}[]&*!|>%@`\t") == value.npos && value.find(": ") == value.npos;
    return is_plain ? value : "";
  }
  return "";
}

std::string_view pipeline_of(const recipe::Recipe& recipe) {
  static const std::map<std::string_view, std::string_view> pipelines = {
      {"classify", "image-classification"}, {"segment", "image-segmentation"}, {"detect", "object-detection"},
      {"language", "text-generation"},      {"preference", "text-generation"}, {"diffuse", "text-to-image"}};
  return pipelines.at(tasks::task_of(recipe).name);
}

/// Returns the last training loss, and all values of the evaluation with the lowest loss, as rows of a table.
std::string metric_rows(const fs::path& log) {
  if (!path_exists(log)) return "";
  const std::string text = read_file(log);
  std::string_view rest = text;
  Json last, best;
  while (!rest.empty()) {
    const std::optional<Json> line = parse_json<Json>(take_line(rest));
    if (!line || !line->is_object()) continue;
    const auto has_number = [&](const char* key) { return line->contains(key) && (*line)[key].is_number(); };
    if (has_number("loss")) last = *line;
    if (has_number("eval_loss") && (best.is_null() || (*line)["eval_loss"] <= best["eval_loss"]))
      best = *line;
  }
  std::string rows;
  if (!last.is_null())
    rows += fmt::format("| training loss, last step | {:.5g} |\n", last["loss"].get<double>());
  for (const auto& [key, value] : best.items()) {
    if (key.starts_with("eval_") && value.is_number())
      rows += fmt::format("| {} | {:.5g} |\n", key, value.get<double>());
  }
  if (!best.is_null() && best.contains("current_steps"))
    rows += fmt::format("| step of the evaluation | {} |\n", best["current_steps"].dump());
  return rows;
}

std::string base_of(const recipe::Recipe& recipe) {
  return recipe.model.path.empty() ? recipe.init : recipe.model.path;
}

/// Returns README.md with a model card for a run.
std::string model_card(const fs::path& run, const recipe::Recipe& recipe, const std::string& repo) {
  const std::string base = base_of(recipe), base_repo = repo_of(base), data_repo = repo_of(recipe.data.path);
  const bool is_adapter = recipe.adapter.wanted();
  const std::string_view pipeline = pipeline_of(recipe);
  const bool is_text = pipeline == "text-generation";
  std::string card = "---\n";
  for (const char* key : {"license", "license_name", "license_link"}) {
    const std::string value = card_value(base, key);
    if (!value.empty()) card += fmt::format("{}: {}\n", key, value);
  }
  if (!base_repo.empty())
    card += fmt::format("base_model: {}\nbase_model_relation: {}\n", base_repo,
                        is_adapter ? "adapter" : "finetune");
  if (!data_repo.empty()) card += fmt::format("datasets:\n- {}\n", data_repo);
  if (is_text) card += fmt::format("library_name: {}\n", is_adapter ? "peft" : "transformers");
  card += fmt::format("pipeline_tag: {}\ntags:\n- hearth\n", pipeline);
  if (is_adapter) card += "- lora\n";
  card += fmt::format("---\n\n# {}\n\n", repo.substr(repo.find('/') + 1));

  const std::string from = base.empty() ? "" : fmt::format(" from {}", shared_path(base));
  card += fmt::format("{} for {}, trained{} with Hearth {}.\n\n", is_adapter ? "A LoRA adapter" : "A model",
                      pipeline, from, kVersion);
  card += fmt::format("## Data\n\n{}\n\n",
                      recipe.data.path.empty() ? "Generated by the recipe." : shared_path(recipe.data.path));
  const std::string rows = metric_rows(run / kLogFile);
  if (!rows.empty()) card += fmt::format("## Metrics\n\n| metric | value |\n| --- | --- |\n{}\n", rows);
  const bool generates = is_text || pipeline == "text-to-image";
  card += fmt::format("## Use\n\n```sh\nhearth {} hf:{} {}\n```\n\n", generates ? "generate" : "predict",
                      repo, generates ? "--prompt \"...\"" : "IMAGE.jpg");
  return card + fmt::format("## Recipe\n\n```yaml\n{}```\n", recipe::write_recipe(shared_recipe(recipe)));
}

/// Returns adapter_config.json with the base model's name on the hub instead of its path in the cache.
std::string shared_adapter_config(const fs::path& file) {
  auto config = parse_json_object<Json>(read_file(file), file.string());
  const auto base = config.find("base_model_name_or_path");
  if (base == config.end() || !base->is_string()) return config.dump(2) + "\n";
  const fs::path path = base->get<std::string>();
  if (const auto name = net::hub_name_of_snapshot(path)) {
    *base = name->repo;
    config["revision"] = name->revision;
  } else if (path.is_absolute()) {
    *base = shared_path(path);
  }
  return config.dump(2) + "\n";
}

/// True for files that a published run or model needs, apart from its weights.
bool is_companion(const std::string& name) {
  static const std::set<std::string> names = {kModelConfig,
                                              kModelIndex,
                                              "generation_config.json",
                                              "preprocessor_config.json",
                                              "tokenizer.json",
                                              "tokenizer_config.json",
                                              "tokenizer.model",
                                              "vocab.json",
                                              "merges.txt",
                                              "vocab.txt",
                                              "added_tokens.json",
                                              "special_tokens_map.json",
                                              "chat_template.jinja",
                                              "chat_template.json",
                                              "scheduler_config.json",
                                              "encoder.json",
                                              "spiece.model",
                                              "LICENSE",
                                              "LICENSE.md",
                                              "LICENSE.txt",
                                              "README.md",
                                              kDetectionClasses,
                                              kClassTable,
                                              kClassNames};
  return names.contains(name) || name.ends_with(".safetensors.index.json");
}

bool is_weights(const fs::path& file) {
  static const std::set<std::string> endings = {".safetensors", ".gguf", ".onnx", ".onnx_data"};
  return endings.contains(file.extension().string());
}

std::vector<hub::UploadFile> files_of_run(const fs::path& run, const recipe::Recipe& recipe,
                                          const std::string& repo) {
  const bool is_adapter = recipe.adapter.wanted();
  const fs::path weights = hub::run_weights(run, is_adapter);
  if (!path_exists(weights))
    user_error("{} has no weights yet ({}); train it first", run.string(), weights.filename().string());
  std::vector<hub::UploadFile> files = {
      {.path = is_adapter ? hub::kAdapterFile : kModelWeights, .file = weights},
      {.path = kRunRecipe, .contents = recipe::write_recipe(shared_recipe(recipe))}};
  if (path_exists(run / hub::kAdapterConfig))
    files.push_back(
        {.path = hub::kAdapterConfig, .contents = shared_adapter_config(run / hub::kAdapterConfig)});
  for (const fs::path& file : list_folder(run))
    if (is_companion(file.filename().string()))
      files.push_back({.path = file.filename().string(), .file = file});
  if (!path_exists(run / "README.md"))
    files.push_back({.path = "README.md", .contents = model_card(run, recipe, repo)});
  return files;
}

/// Appends the files of a model folder, or of a folder of a diffusers pipeline.
void add_folder(const fs::path& folder, const std::string& prefix, std::vector<hub::UploadFile>& files) {
  for (const fs::path& file : list_folder(folder)) {
    const std::string name = file.filename().string();
    if (name == hub::kAdapterConfig)
      files.push_back({.path = prefix + name, .contents = shared_adapter_config(file)});
    else if (fs::is_regular_file(file) && (is_companion(name) || is_weights(file)))
      files.push_back({.path = prefix + name, .file = file});
    else if (prefix.empty() && fs::is_directory(file) && path_exists(folder / kModelIndex))
      add_folder(file, name + "/", files);
  }
}

}  // namespace

std::vector<hub::UploadFile> files_to_share(const fs::path& folder, const std::string& repo) {
  if (!fs::is_directory(folder)) user_error("there is no run or model folder at '{}'", folder.string());
  std::vector<hub::UploadFile> files;
  if (const auto recipe = recipe_of_run(folder)) {
    files = files_of_run(folder, *recipe, repo);
  } else {
    add_folder(folder, "", files);
    const bool has_weights = std::ranges::any_of(files, is_weights, &hub::UploadFile::file);
    if (!has_weights)
      user_error("'{}' has no weights (safetensors, GGUF or ONNX); give a run or a model folder",
                 folder.string());
  }
  std::ranges::sort(files, {}, &hub::UploadFile::path);
  return files;
}

}  // namespace hearth::run
