#include "convert/import.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "convert/rule.h"
#include "recipe/fields.h"
#include "recipe/recipe_file.h"

namespace hearth::convert {
namespace {

/// Calls visit(part) for each non-empty part of a text between separators.
template <typename Visit>
void for_each_part(std::string_view text, char separator, const Visit& visit) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool matches(const Rule& rule, std::string_view key) {
  bool found = false;
  for_each_part(rule.keys, ' ', [&](std::string_view name) {
    found |= name.ends_with('*') ? key.starts_with(name.substr(0, name.size() - 1)) : key == name;
  });
  return found;
}

const Rule* find_rule(const Tool& tool, std::string_view key) {
  for (const auto table : tool.tables)
    for (const Rule& rule : table)
      if (matches(rule, key)) return &rule;
  return nullptr;
}

/// Returns the tool of a config: of the tools with one of their marks in the config, the tool whose tables
/// contain the most keys of the config.
const Tool& recognize(const Config& config, const ImportOptions& options, const std::string& file) {
  const std::string& name = options.tool;
  const Tool* best = nullptr;
  size_t best_known = 0;
  for (const Tool& tool : tools()) {
    if (tool.name == name) return tool;
    Config prepared = config;
    if (tool.prepare != nullptr) tool.prepare(prepared, {.choices = options.choices, .reads_files = false});
    bool is_marked = false;
    for_each_part(tool.marks, ' ',
                  [&](std::string_view mark) { is_marked |= config.has(mark) || prepared.has(mark); });
    const auto known = static_cast<size_t>(std::ranges::count_if(
        prepared.entries(), [&](const Entry& entry) { return find_rule(tool, entry.key) != nullptr; }));
    if (!is_marked || known <= best_known) continue;
    best = &tool;
    best_known = known;
  }
  std::vector<std::string> names;
  for (const Tool& tool : tools()) names.emplace_back(tool.name);
  if (!name.empty())
    user_error("there is no tool '{}'{}; use one of {}", name, did_you_mean(name, names),
               fmt::join(names, ", "));
  if (best == nullptr)
    user_error("{}: no supported tool has these keys; set --tool to one of {}", file, fmt::join(names, ", "));
  return *best;
}

/// Applies a rule of kind take: maps the value and sets the recipe's key.
Result apply_take(Importer& importer, const Rule& rule, const Entry& entry) {
  if (entry.value.is_array()) {
    const std::vector<std::string> texts = texts_of(entry.value);
    return importer.set_list(rule.ours, texts, rule.note);
  }
  const std::string text = text_of(entry.value);
  if (rule.values.empty()) {
    return entry.value.is_string() ? importer.set_text(rule.ours, text, rule.note)
                                   : importer.set(rule.ours, text, rule.note);
  }
  std::optional<std::string> mapped;
  for_each_part(rule.values, ' ', [&](std::string_view pair) {
    const size_t equals = pair.find('=');
    if (lowered(text) == pair.substr(0, equals)) mapped = pair.substr(equals + 1);
  });
  if (!mapped) return importer.refuse(fmt::format("Hearth has no {}", text), rule.ours);
  return importer.set(rule.ours, *mapped, rule.note);
}

Result apply(Importer& importer, const Rule& rule, const Entry& entry) {
  const std::string note(rule.note);
  switch (rule.kind) {
    case RuleKind::take:
      return apply_take(importer, rule, entry);
    case RuleKind::without_effect:
    case RuleKind::part:
      return no_effect(note);
    case RuleKind::convert:
      return rule.convert(importer, entry);
    case RuleKind::accept:
      break;
  }
  bool is_accepted = rule.values.empty() && is_off(entry.value);
  const std::string text = lowered(text_of(entry.value));
  for_each_part(rule.values, '|', [&](std::string_view value) { is_accepted |= text == value; });
  if (is_accepted) return equal(rule.values.empty() ? "off" : "Hearth does the same");
  return importer.refuse(note, rule.ours);
}

/// Returns model.path for model, data.path for data, and other keys unchanged.
std::string full_key(const std::string& key) { return key == "model" || key == "data" ? key + ".path" : key; }

/// Returns Fate::taken for a refused key if an override sets the corresponding key of the recipe.
Result with_overrides(const ImportOptions& options, Result result) {
  if (result.fate != Fate::refused || result.ours.empty()) return result;
  for (const std::string& text : options.overrides)
    if (full_key(text.substr(0, text.find('='))) == result.ours) return {Fate::taken, text + " (set by you)"};
  return result;
}

constexpr size_t kMaxShown = 60;

/// True if an earlier entry of the same key has another value, but the recipe has a single value for both.
bool differs_from_first(const Importer& importer, const Rule& rule, const Entry& entry) {
  const bool sets_value = rule.kind == RuleKind::take || rule.kind == RuleKind::convert;
  if (!sets_value || rule.ours.empty() || rule.ours == "data.path") return false;
  const Entry* first = importer.config.find(entry.key);
  return first != nullptr && first->path != entry.path && first->value != entry.value;
}

/// Keys of a config while they are converted.
struct Conversion {
  Importer& importer;
  Imported& imported;
  /// For each key of `imported`, the recipe key that it set, and its value; empty if it set none.
  std::vector<std::pair<std::string, std::string>> settings = {};

  void add(const Entry& entry, const Rule* rule) {
    Result result{Fate::refused, "unknown key"};
    if (entry.value.is_null()) {
      result = {Fate::equal, "not set"};
    } else if (rule != nullptr && differs_from_first(importer, *rule, entry)) {
      result = importer.refuse(fmt::format("the value differs from {}, but Hearth has one value for all",
                                           importer.config.find(entry.key)->path),
                               rule->ours);
    } else if (rule != nullptr) {
      result = apply(importer, *rule, entry);
    } else if (is_off(entry.value)) {
      result = {Fate::equal, "unknown key that is off"};
    }
    result = with_overrides(importer.options, result);
    const bool is_set = result.fate == Fate::taken || result.fate == Fate::equal;
    const std::string ours = is_set ? result.ours : "";
    settings.emplace_back(ours, ours.empty() ? "" : importer.value_of(ours));
    imported.keys.push_back({.key = entry.path,
                             .value = shortened(text_of(entry.value), kMaxShown),
                             .fate = result.fate,
                             .detail = result.detail,
                             .where = entry.where});
  }

  /// Changes the outcome of keys whose setting was replaced by that of a later key or of an override.
  void correct_replaced() {
    for (size_t i = 0; i < settings.size(); ++i) {
      const auto& [ours, value] = settings[i];
      if (ours.empty() || importer.value_of(ours) == value) continue;
      imported.keys[i].fate = Fate::no_effect;
      imported.keys[i].detail = fmt::format("{}={} applies instead", ours, importer.value_of(ours));
    }
  }
};

/// Converts the tool's defaults of absent keys. Lists only those that change the recipe or are refused.
void add_fallbacks(Conversion& conversion) {
  const Importer& importer = conversion.importer;
  Imported& imported = conversion.imported;
  std::set<std::string_view> seen;
  for (const auto table : importer.tool.tables) {
    for (const Rule& rule : table) {
      bool is_set = false;
      for_each_part(rule.keys, ' ', [&](std::string_view key) {
        is_set |= importer.config.find(key) != nullptr || !seen.insert(key).second;
      });
      if (rule.fallback.empty() || is_set) continue;
      const std::string name(rule.keys.substr(0, rule.keys.find(' ')));
      const double number = number_of(Value(std::string(rule.fallback)), std::nan(""));
      const Value value = rule.fallback == "true"    ? Value(true)
                          : rule.fallback == "false" ? Value(false)
                          : std::isnan(number)       ? Value(std::string(rule.fallback))
                                                     : Value(number);
      const Entry entry{.path = name, .key = name, .value = value, .where = ""};
      const size_t before = imported.keys.size();
      conversion.add(entry, &rule);
      const Fate fate = imported.keys.back().fate;
      if (fate != Fate::equal && fate != Fate::no_effect) continue;
      imported.keys.resize(before);
      conversion.settings.resize(before);
    }
  }
}

/// Applies the user's overrides. Throws a UserError for an unknown key or an invalid value.
void apply_overrides(Importer& importer) {
  for (const std::string& text : importer.options.overrides) {
    const size_t equals = text.find('=');
    if (equals == text.npos)
      user_error("'{}' is not an override; write KEY=VALUE, such as train.batch=64", text);
    const std::string key = full_key(text.substr(0, equals)), value = text.substr(equals + 1);
    const Result result = value.starts_with('[') ? importer.set(key, value) : importer.set_text(key, value);
    if (result.fate == Fate::refused)
      user_error("{}: {}; hearth ls --keys lists the keys", text, result.detail);
  }
}

/// Sets keys that a recipe needs but the config does not set: the model, the data and, if no text is held
/// out, the text of evaluations.
void add_missing(Importer& importer, Imported& imported) {
  const bool is_text = importer.value_of("data.kind").empty();
  const bool has_model = !importer.value_of("model.path").empty() || !importer.value_of("model.name").empty();
  const auto add = [&](std::string_view key, const Result& result) {
    imported.keys.push_back({.key = std::string(key), .fate = result.fate, .detail = result.detail});
  };
  const auto need = [&](std::string_view key, std::string_view value) {
    add(key, importer.refuse(fmt::format("the config does not set it; append {}=PATH to the command", key),
                             key, value));
  };
  if (!has_model) need("model.path", "model");
  if (importer.value_of("data.path").empty()) need("data.path", is_text ? "data.jsonl" : "images");
  const bool holds_out =
      importer.value_of("data.val_share") != "0" || !importer.value_of("data.val_path").empty();
  if (is_text && !holds_out)
    add("data.val_path", importer.set("data.val_path", importer.value_of("data.path"),
                                      "no data are held out, so evaluations use the training data"));
}

/// Returns the recipe as YAML: a comment for each refused key, then the keys by section.
std::string write_settings(const Importer& importer, const Imported& imported, const std::string& file) {
  std::string text =
      fmt::format("# Imported by hearth import from {} ({}).\n", printable(file, false), imported.tool);
  for (const ImportedKey& key : imported.keys) {
    if (key.fate != Fate::refused) continue;
    const std::string value = key.value.empty() ? "" : ": " + key.value;
    text += printable(fmt::format("# Refused: {}{}: {}", key.key, value, key.detail), false) + "\n";
  }
  std::string section;
  for (const recipe::Field& field : recipe::recipe_fields()) {
    const auto found = importer.settings().find(field.key);
    if (found == importer.settings().end()) continue;
    const size_t dot = field.key.find('.');
    const std::string parent = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (parent != section) text += parent + ":\n";
    section = parent;
    const std::string name = dot == std::string::npos ? field.key : "  " + field.key.substr(dot + 1);
    text += fmt::format("{}: {}\n", name, found->second);
  }
  return text;
}

}  // namespace

size_t Imported::count(Fate fate) const {
  return static_cast<size_t>(
      std::ranges::count_if(keys, [&](const ImportedKey& key) { return key.fate == fate; }));
}

Imported import_config(const std::string& text, const fs::path& file, const ImportOptions& options) {
  Config config(text, file);
  const std::string file_name = file.string();
  const Tool& tool = recognize(config, options, file_name);
  if (tool.prepare != nullptr) tool.prepare(config, options);
  Importer importer(config, tool, options);
  Imported imported{.tool = std::string(tool.title)};
  Conversion conversion{importer, imported};
  for (const Entry& entry : config.entries()) conversion.add(entry, find_rule(tool, entry.key));
  add_fallbacks(conversion);
  apply_overrides(importer);
  conversion.correct_replaced();
  add_missing(importer, imported);
  imported.recipe = write_settings(importer, imported, file_name);
  imported.needs_updates = importer.needs_updates;
  try {
    recipe::parse_recipe(imported.recipe, "the imported recipe", options.choices);
  } catch (const UserError& error) {
    imported.fault = error.what();
  }
  return imported;
}

}  // namespace hearth::convert
