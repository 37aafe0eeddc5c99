#include "convert/config.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/yaml.h"

namespace hearth::convert {
namespace {

constexpr YamlKind kConfigFile{"config file", "give the YAML, TOML or JSON file of another tool"};

/// Returns the value of a YAML scalar by the rules of PyYAML (YAML 1.1), except that 1e-4 is a number.
Value scalar_of(const YAML::Node& node) {
  const std::string& text = node.Scalar();
  if (node.Tag() == "!") return text;
  const std::string low = lowered(text);
  if (low.empty() || low == "null" || low == "~") return nullptr;
  if (low == "true" || low == "yes" || low == "on") return true;
  if (low == "false" || low == "no" || low == "off") return false;
  constexpr std::string_view kNumber = "0123456789+-.eE_";
  const bool has_digit = text.find_first_of("0123456789") != text.npos;
  if (!has_digit || text.find_first_not_of(kNumber) != text.npos) return text;
  std::string digits = text;
  std::erase(digits, '_');
  if (int64_t whole = 0; YAML::convert<int64_t>::decode(YAML::Node(digits), whole)) return whole;
  double number = 0;
  const bool is_number = YAML::convert<double>::decode(YAML::Node(digits), number) && std::isfinite(number);
  return is_number ? Value(number) : Value(text);
}

/// Adds an entry. Throws a UserError if there are too many.
void add(std::vector<Entry>& entries, Entry entry) {
  if (entries.size() >= Config::kMaxEntries)
    user_error("{}: more than {} values; shorten the file", entry.where, Config::kMaxEntries);
  entries.push_back(std::move(entry));
}

/// True if a YAML list contains no map, so that it is a value.
bool is_plain_list(const YAML::Node& node) {
  for (const auto& element : node)
    if (element.IsMap() || (element.IsSequence() && !is_plain_list(element))) return false;
  return true;
}

Value list_of(const YAML::Node& node) {
  Value list = Value::array();
  for (const auto& element : node)
    list.push_back(element.IsSequence() ? list_of(element)
                   : element.IsScalar() ? scalar_of(element)
                                        : Value(nullptr));
  return list;
}

/// Appends the values under a YAML node. Throws a UserError for a key that is set twice.
void read_yaml(const YAML::Node& node, const std::string& path, const std::string& key,
               const std::string& file, std::vector<Entry>& entries) {
  const std::string where = fmt::format("{}:{}", file, node.Mark().line + 1);
  if (node.IsMap() && node.size() > 0) {
    std::set<std::string> seen;
    for (const auto& pair : node) {
      const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "?";
      if (!seen.insert(name).second)
        user_error("{}:{}: '{}' is set twice; remove one of them", file, pair.first.Mark().line + 1, name);
      const char* const dot = key.empty() ? "" : ".";
      read_yaml(pair.second, fmt::format("{}{}{}", path, dot, name), fmt::format("{}{}{}", key, dot, name),
                file, entries);
    }
  } else if (node.IsSequence() && !is_plain_list(node)) {
    for (size_t i = 0; i < node.size(); ++i)
      read_yaml(node[i], fmt::format("{}[{}]", path, i), key, file, entries);
  } else {
    const Value value = node.IsSequence() ? list_of(node)
                        : node.IsScalar() ? scalar_of(node)
                                          : Value(nullptr);
    add(entries, {.path = path, .key = key, .value = value, .where = where});
  }
}

bool is_plain_list(const Value& value) {
  for (const Value& element : value)
    if (element.is_object() || (element.is_array() && !is_plain_list(element))) return false;
  return true;
}

/// Appends the values under a JSON value.
void read_json(const Value& value, const std::string& path, const std::string& key, const std::string& file,
               std::vector<Entry>& entries) {
  if (value.is_object() && !value.empty()) {
    const char* const dot = key.empty() ? "" : ".";
    for (const auto& [name, inner] : value.items())
      read_json(inner, fmt::format("{}{}{}", path, dot, name), fmt::format("{}{}{}", key, dot, name), file,
                entries);
  } else if (value.is_array() && !is_plain_list(value)) {
    for (size_t i = 0; i < value.size(); ++i)
      read_json(value[i], fmt::format("{}[{}]", path, i), key, file, entries);
  } else {
    add(entries,
        {.path = path, .key = key, .value = value.is_object() ? Value(nullptr) : value, .where = file});
  }
}

}  // namespace

Config::Config(const std::string& text, const fs::path& file) {
  const std::string name = file.string(), extension = lowered(file.extension().string());
  const std::string plain(without_bom(text));
  if (std::ssize(plain) > kMaxYamlBytes)
    user_error(
        "{}: the file has {} bytes, but a config may have at most 1 MiB; give a config file of another tool",
        name, plain.size());
  if (extension == ".toml") {
    read_toml(plain, name, entries_);
  } else if (extension == ".json") {
    read_json(parse_json_object<Value>(plain, name), "", "", name, entries_);
  } else {
    const YAML::Node root = parse_yaml(plain, name, kConfigFile);
    if (!root.IsMap())
      user_error(
          "{}:1: the file contains no keys such as 'base_model: ...'; give a config file of another tool",
          name);
    read_yaml(root, "", "", name, entries_);
  }
  if (entries_.empty()) user_error("{}: the file contains no keys; give a config file of another tool", name);
}

const Entry* Config::find(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key == key && !entry.value.is_null()) return &entry;
  return nullptr;
}

bool Config::has(std::string_view key) const {
  for (const Entry& entry : entries_)
    if (entry.key.starts_with(key) && (entry.key.size() == key.size() || entry.key[key.size()] == '.'))
      return true;
  return false;
}

std::string Config::text(std::string_view key, std::string_view otherwise) const {
  const Entry* entry = find(key);
  return entry == nullptr ? std::string(otherwise) : text_of(entry->value);
}

double Config::number(std::string_view key, double otherwise) const {
  const Entry* entry = find(key);
  return entry == nullptr ? otherwise : number_of(entry->value, otherwise);
}

bool Config::is_true(std::string_view key) const {
  const Entry* entry = find(key);
  return entry != nullptr && entry->value.is_boolean() && entry->value.get<bool>();
}

std::string text_of(const Value& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return number_text(value.get<double>());
  if (!value.is_array()) return "";
  std::string text;
  for (const Value& element : value) text += (text.empty() ? "" : ", ") + text_of(element);
  return "[" + text + "]";
}

double number_of(const Value& value, double otherwise) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return otherwise;
  const std::string& text = value.get_ref<const std::string&>();
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return text.empty() || *end != 0 || !std::isfinite(number) ? otherwise : number;
}

std::string number_text(double number) {
  const bool is_whole = number == std::trunc(number) && std::abs(number) < 1e15;
  return is_whole ? fmt::format("{}", static_cast<int64_t>(number)) : fmt::format("{}", number);
}

std::vector<std::string> texts_of(const Value& value) {
  std::vector<std::string> texts;
  if (value.is_array()) {
    for (const Value& element : value) texts.push_back(text_of(element));
    return texts;
  }
  if (value.is_number() || value.is_boolean()) return {text_of(value)};
  std::string_view rest = value.is_string() ? std::string_view(value.get_ref<const std::string&>()) : "";
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    if (const std::string_view part = trimmed(rest.substr(0, comma)); !part.empty()) texts.emplace_back(part);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return texts;
}

}  // namespace hearth::convert
