#include <fmt/format.h>

#include <cmath>

#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "convert/rule.h"
#include "recipe/fields.h"
#include "recipe/recipe.h"

namespace hearth::convert {
namespace {

const recipe::Field* find_field(std::string_view key) {
  for (const recipe::Field& field : recipe::recipe_fields())
    if (field.key == key) return &field;
  return nullptr;
}

}  // namespace

std::string_view fate_name(Fate fate) {
  switch (fate) {
    case Fate::taken:
      return "taken";
    case Fate::equal:
      return "equal by default";
    case Fate::no_effect:
      return "no effect";
    case Fate::refused:
      break;
  }
  return "refused";
}

bool is_off(const Value& value) {
  if (value.is_null() || value.empty()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  const std::string text = lowered(text_of(value));
  return value.is_string() && (text.empty() || text == "none" || text == "no" || text == "false");
}

Result Importer::set_yaml(std::string_view ours, const std::string& yaml, std::string_view note) {
  const recipe::Field* field = find_field(ours);
  if (field == nullptr) return {Fate::refused, fmt::format("there is no key {}", ours)};
  recipe::Recipe scratch;
  YAML::Node node;
  try {
    node = YAML::Load(yaml);
  } catch (const YAML::Exception&) {
    return {Fate::refused, fmt::format("the value is invalid for {0}; set {0}", ours), std::string(ours)};
  }
  if (const std::string expected = field->read(scratch, node, options.choices); !expected.empty())
    return {Fate::refused, fmt::format("{} must be {}", ours, expected), std::string(ours)};
  const std::string value = field->write(scratch);
  settings_[std::string(ours)] = value;
  const bool is_default = value == field->write(recipe::Recipe());
  return {is_default ? Fate::equal : Fate::taken,
          fmt::format("{}={}{}{}", ours, value, note.empty() ? "" : "; ", note), std::string(ours)};
}

Result Importer::set(std::string_view ours, std::string_view value, std::string_view note) {
  return set_yaml(ours, std::string(value), note);
}

Result Importer::set_text(std::string_view ours, std::string_view text, std::string_view note) {
  return set_yaml(ours, yaml_quoted(text), note);
}

Result Importer::set_list(std::string_view ours, std::span<const std::string> texts, std::string_view note) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + yaml_quoted(text);
  return set_yaml(ours, "[" + list + "]", note);
}

Result Importer::refuse(std::string_view reason, std::string_view ours, std::string_view nearest) {
  std::string detail(reason);
  if (!nearest.empty()) {
    set(ours, nearest);
    detail += fmt::format("; the recipe sets {}={}", ours, nearest);
  } else if (!ours.empty() && reason.find(fmt::format("set {}", ours)) == reason.npos) {
    detail += fmt::format("; set {}", ours);
  }
  return {Fate::refused, detail, std::string(ours)};
}

std::string Importer::value_of(std::string_view ours) const {
  const auto found = settings_.find(ours);
  return found == settings_.end() ? "" : found->second;
}

std::optional<double> Importer::updates() {
  for (const char* key : {"max_steps", "max_train_steps"})
    if (const double steps = config.number(key, 0); steps > 0) return steps;
  if (options.updates) return static_cast<double>(*options.updates);
  needs_updates = true;
  return std::nullopt;
}

bool Importer::exists(const std::string& path) const { return options.reads_files && path_exists(path); }

}  // namespace hearth::convert
