#include "recipe/recipe_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "recipe/checks.h"
#include "recipe/fields.h"
#include "recipe/key_help.h"

namespace hearth::recipe {
namespace {

constexpr YamlKind kRecipe{"recipe", "try hearth cp demo FILE.yaml for a new one"};

/// Alternative names of keys: short and old names, and names in other tools (transformers, LLaMA-Factory,
/// axolotl), with the key that each sets.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"model", "model.name"},
    {"precision.matmul", "matmul_precision"},
    {"lr", "optimizer.lr"},
    {"learning_rate", "optimizer.lr"},
    {"batch_size", "train.batch"},
    {"epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"steps", "train.steps"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"data", "data.kind"},
    {"segment.ignore", "data.unlabeled"},
    {"data.keep_pictures", "data.keep_images"},
    {"diffuse.val_pictures", "diffuse.val_images"},
    {"bad_steps.most", "bad_steps.max"},
    {"ignore_index", "data.unlabeled"},
    {"drop_last", "data.drop_last"},
    {"optimizer", "optimizer.name"},
    {"schedule", "schedule.name"},
    {"max_grad_norm", "train.clip_norm"},
    {"eval_steps", "train.eval_every"},
    {"eval_on_start", "train.eval_on_start"},
    {"model_name_or_path", "model.path"},
    {"base_model", "model.path"},
    {"num_epochs", "train.epochs"},
    {"micro_batch_size", "train.batch"},
    {"per_device_train_batch_size", "train.batch"},
    {"cutoff_len", "data.context"},
    {"sequence_len", "data.context"},
    {"max_seq_len", "data.context"},
    {"max_seq_length", "data.context"},
    {"max_length", "data.context"},
    {"packing", "data.packing"},
    {"sample_packing", "data.packing"},
    {"template", "data.template"},
    {"chat_template", "data.template"},
    {"train_on_prompt", "data.train_on_prompt"},
    {"train_on_inputs", "data.train_on_prompt"},
    {"val_size", "data.val_share"},
    {"val_set_size", "data.val_share"},
    {"dataset_prepared_path", "data.cache"},
    {"weight_decay", "optimizer.weight_decay"},
    {"adapter", "adapter.name"},
    {"lora_r", "adapter.rank"},
    {"lora_rank", "adapter.rank"},
    {"lora_alpha", "adapter.alpha"},
    {"lora_dropout", "adapter.dropout"},
    {"lora_target", "adapter.targets"},
    {"lora_target_modules", "adapter.targets"},
    {"target_modules", "adapter.targets"},
    {"use_rslora", "adapter.rslora"},
    {"rl", "train.objective"},
    {"rl_beta", "dpo.beta"},
    {"pref_beta", "dpo.beta"}};

/// Returns a value as text for a message: one line, shortened to kMaxShown characters.
std::string shown(const YAML::Node& value) {
  if (value.IsNull()) return "nothing";
  if (value.IsSequence()) return fmt::format("a list of {}", value.size());
  if (!value.IsScalar()) return "keys";
  constexpr size_t kMaxShown = 60;
  const std::string& text = value.Scalar();
  const std::string quoted = yaml_quoted(std::string_view(text).substr(0, kMaxShown));
  return fmt::format("'{}{}'", quoted.substr(1, quoted.size() - 2), text.size() > kMaxShown ? "..." : "");
}

std::string section_of(const std::string& key) { return key.substr(0, key.find('.') + 1); }
std::string leaf_of(const std::string& key) { return key.substr(key.find('.') + 1); }

/// Returns the key that the user probably meant by an unknown key: one with the same name in another section,
/// otherwise the one with the smallest edit distance.
std::optional<std::string> likely_key(const std::string& key) {
  std::map<std::string, std::string> meant;
  for (const auto& [alias, name] : kAliases) meant.emplace(alias, name);
  const std::vector<std::string> keys = recipe_keys();
  for (const std::string& name : keys) {
    meant.emplace(leaf_of(name), name);
    meant.emplace(name, name);
  }
  if (const auto found = meant.find(leaf_of(key)); found != meant.end()) return found->second;
  if (key.find('.') != std::string::npos) return nearest_name(key, keys);
  std::vector<std::string> names;
  for (const auto& [name, full] : meant) names.push_back(name);
  const auto near = nearest_name(key, names);
  return near ? std::optional(meant.at(*near)) : std::nullopt;
}

/// Returns model.path for model=FOLDER and data.path for data=FILE, otherwise the key unchanged. A value is a
/// path if it has a slash or an extension, or if the file exists; names of models and data kinds have
/// neither.
std::string key_or_path(const std::string& key, const YAML::Node& value) {
  if ((key != "model" && key != "data") || !value.IsScalar()) return key;
  const std::string& text = value.Scalar();
  std::error_code ignored;
  const bool is_file =
      text.find('/') != std::string::npos || fs::path(text).has_extension() || fs::exists(text, ignored);
  return is_file ? key + ".path" : key;
}

const Field* find_field(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& [alias, name] : kAliases) {
    if (key == alias) key = name;
  }
  for (const Field& field : recipe_fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

/// Returns the first field of a section such as 'train'; null if there is no such section.
const Field* first_of_section(const std::string& name) {
  for (const Field& field : recipe_fields()) {
    if (section_of(field.key) == name + ".") return &field;
  }
  return nullptr;
}

[[noreturn]] void refuse_key(const std::string& key, const std::string& where) {
  const std::string name = yaml_quoted(key.substr(0, 60));
  const auto meant = likely_key(key);
  user_error("expected a key of a recipe, got {} in {}; {}", name, where,
             meant ? fmt::format("did you mean '{}'?", *meant) : "try hearth ls --keys, which lists them");
}

std::string advice(const Field& field) {
  if (!field.advice.empty()) return "try " + field.advice;
  const std::string default_value = field.write(Recipe());
  return default_value == "\"\"" || default_value == "[]" ? "try hearth ls --keys" : "try " + default_value;
}

/// State of parsing: the recipe so far, and the locations of its keys.
struct Parser {
  Recipe recipe;
  KeyLocations locations;
  const Choices& choices;
};

void read_key(Parser& parser, const std::string& key, const YAML::Node& value, const std::string& where) {
  const Field* field = find_field(key_or_path(key, value));
  const Field* inside = first_of_section(key);
  if (field == nullptr && inside != nullptr) {
    if (value.IsNull()) return;
    user_error("expected the keys of the section '{}', got {} in {}; try {}: {{{}: {}}}", key, shown(value),
               where, key, leaf_of(inside->key), inside->write(Recipe()));
  }
  if (field == nullptr) refuse_key(key, where);
  if (const std::string expected = field->read(parser.recipe, value, parser.choices); !expected.empty()) {
    user_error("expected {} for {}, got {} in {}; {}", expected, field->key, shown(value), where,
               advice(*field));
  }
  parser.locations.set(field->key, where);
}

void read_map(Parser& parser, const YAML::Node& map, const std::string& prefix, const std::string& file) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string where = fmt::format("{}:{}", file, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) user_error("expected a key, got {} in {}", shown(entry.first), where);
    const std::string key = prefix + entry.first.Scalar();
    const Field* field = find_field(key);
    if (!seen.insert(key).second || (field != nullptr && parser.locations.contains(field->key))) {
      user_error("'{}' is set twice, the second time in {}; remove one of them",
                 field != nullptr ? field->key : key, where);
    }
    if (!entry.second.IsMap()) {
      read_key(parser, key, entry.second, where);
    } else if (prefix.empty() && first_of_section(key) != nullptr) {
      read_map(parser, entry.second, key + ".", file);
    } else if (field != nullptr) {
      user_error("expected a value for '{}', got a section in {}; {}", key, where, advice(*field));
    } else {
      const YAML::const_iterator first = entry.second.begin();
      const bool named = prefix.empty() && first != entry.second.end() && first->first.IsScalar();
      refuse_key(named ? key + "." + first->first.Scalar() : key, where);
    }
  }
}

/// Returns the value of an override. Lists are parsed as YAML; other values are literal, because '#' and ':'
/// may be in a path.
YAML::Node override_value(const std::string& key, const std::string& value, const std::string& where) {
  const Field* field = find_field(key);
  if (line_of_bytes_that_are_no_text(value) != 0) user_error("invalid UTF-8 in {}", where);
  if (field == nullptr || !field->is_list) return YAML::Node(value);
  return value.empty() ? YAML::Node() : parse_yaml(value, where, kRecipe);
}

/// Applies overrides to a parsed recipe, then sets the defaults that depend on other keys, and checks the
/// result.
Recipe finish(Parser parser, std::span<const std::string> overrides) {
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) user_error("expected an override like train.batch=64, got '{}'", text);
    const std::string key = text.substr(0, equals);
    const std::string given = KeyLocations::kOverride + yaml_quoted(text);
    read_key(parser, key, override_value(key, text.substr(equals + 1), given), given);
  }
  set_dependent_values(parser.recipe, parser.locations);
  check(parser.recipe, parser.locations);
  return std::move(parser.recipe);
}

}  // namespace

Recipe with_overrides(Recipe recipe, const std::string& where, const Choices& choices,
                      std::span<const std::string> overrides) {
  return finish({.recipe = std::move(recipe), .locations = KeyLocations(where), .choices = choices},
                overrides);
}

Recipe parse_recipe(const std::string& yaml, const std::string& where, const Choices& choices,
                    std::span<const std::string> overrides) {
  Parser parser{.recipe = {}, .locations = KeyLocations(where), .choices = choices};
  const YAML::Node root = parse_yaml(yaml, where, kRecipe);
  if (!root.IsMap() && !root.IsNull()) {
    user_error(
        "expected keys like 'train:' at the top, got {} in {}:1; try hearth cp demo FILE.yaml for a recipe",
        shown(root), where);
  }
  if (root.IsMap()) read_map(parser, root, "", where);
  return finish(std::move(parser), overrides);
}

Recipe load_recipe(const fs::path& path, const Choices& choices, std::span<const std::string> overrides) {
  return parse_recipe(read_file(path, kMaxYamlBytes), path.string(), choices, overrides);
}

std::string write_recipe(const Recipe& recipe) {
  std::string text;
  std::string section;
  for (const Field& field : recipe_fields()) {
    const size_t dot = field.key.find('.');
    const std::string parent = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (parent != section) text += parent + ":\n";
    section = parent;
    const std::string name = dot == std::string::npos ? field.key : "  " + field.key.substr(dot + 1);
    text += fmt::format("{}: {}\n", name, field.write(recipe));
  }
  return text;
}

std::vector<std::string> recipe_keys() {
  std::vector<std::string> keys;
  for (const Field& field : recipe_fields()) keys.push_back(field.key);
  return keys;
}

std::vector<KeyHelp> key_help(const Choices& choices) {
  std::vector<KeyHelp> keys;
  const Recipe defaults;
  for (const Field& field : recipe_fields())
    keys.push_back({field.key, field.write(defaults), doc_of(field, choices)});
  return keys;
}

std::string describe_keys(const Choices& choices) {
  std::string text;
  for (const KeyHelp& key : key_help(choices))
    text += fmt::format("  {:<26} {:<14} {}\n", key.name, key.default_value, key.doc);
  return text;
}

std::string describe_keys_in_markdown(const Choices& choices) {
  std::string text;
  std::string section = "none yet";
  const Recipe defaults;
  for (const Field& field : recipe_fields()) {
    const size_t dot = field.key.find('.');
    const std::string parent = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (parent != section) {
      text += fmt::format("\n## {}\n\n| key | default | meaning |\n| --- | --- | --- |\n",
                          parent.empty() ? "Keys without a section" : "`" + parent + "`");
    }
    section = parent;
    const std::string value = field.write(defaults);
    text += fmt::format("| `{}` | {} | {} |\n", field.key, value == "\"\"" ? "" : "`" + value + "`",
                        doc_of(field, choices));
  }
  text += "\n## Names that other tools use\n\n| name | key |\n| --- | --- |\n";
  for (const auto& [alias, key] : kAliases) text += fmt::format("| `{}` | `{}` |\n", alias, key);
  return text;
}

}  // namespace hearth::recipe
