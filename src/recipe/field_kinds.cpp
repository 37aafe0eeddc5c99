#include "recipe/field_kinds.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "recipe/yaml.h"

namespace hearth::recipe {
namespace {

template <typename T>
const T& constant(const Member<T>& member, const Recipe& recipe) {
  return member(const_cast<Recipe&>(recipe));
}

}  // namespace

std::optional<std::string> text_of(const YAML::Node& node) {
  if (node.IsNull()) return "";
  if (!node.IsScalar() || node.Scalar().find('\0') != std::string::npos) return std::nullopt;
  return node.Scalar();
}

Field integer(std::string key, std::string doc, Member<int64_t> member, int64_t least, int64_t most) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = number_of<int64_t>(node);
    if (!value || *value < least || *value > most) {
      return fmt::format("a whole number from {} to {}", least, most);
    }
    member(recipe) = *value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return std::to_string(constant(member, recipe)); }};
}

Field real(std::string key, std::string doc, Member<double> member, double least, double below) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = number_of<double>(node);
    if (!value || !(*value >= least && *value < below)) {
      return fmt::format("a number from {} to below {}", least, below);
    }
    member(recipe) = *value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return fmt::format("{}", constant(member, recipe)); }};
}

Field boolean(std::string key, std::string doc, Member<bool> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    bool value = false;
    if (!YAML::convert<bool>::decode(node, value)) return "true or false";
    member(recipe) = value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return constant(member, recipe) ? "true" : "false"; }};
}

Field text(std::string key, std::string doc, Member<std::string> member, std::vector<std::string> choices) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = text_of(node);
    if (!value) return "one word or path";
    if (!choices.empty() && std::find(choices.begin(), choices.end(), *value) == choices.end()) {
      std::vector<std::string> names;
      for (const std::string& choice : choices) names.push_back(choice.empty() ? "\"\"" : choice);
      return fmt::format("one of {}{}", fmt::join(names, ", "), did_you_mean(*value, choices));
    }
    member(recipe) = *value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return yaml_quoted(constant(member, recipe)); }};
}

template <typename T>
Field numbers(std::string key, std::string doc, Member<std::vector<T>> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    std::vector<T> values;
    if (!node.IsSequence()) return "a list like [1, 2]";
    for (const YAML::Node& item : node) {
      const auto value = number_of<T>(item);
      if (!value) return "a list of finite numbers like [1, 2]";
      values.push_back(*value);
    }
    member(recipe) = values;
    return "";
  };
  const auto write = [=](const Recipe& recipe) {
    return fmt::format("[{}]", fmt::join(constant(member, recipe), ", "));
  };
  return {.key = key, .doc = doc, .read = read, .write = write, .is_list = true};
}

template Field numbers(std::string, std::string, Member<std::vector<int64_t>>);
template Field numbers(std::string, std::string, Member<std::vector<float>>);

Field words(std::string key, std::string doc, Member<std::vector<std::string>> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    std::vector<std::string> values;
    if (!node.IsSequence()) return "a list like [a, b]";
    for (const YAML::Node& item : node) {
      const auto value = text_of(item);
      if (!value) return "a list of words like [a, b]";
      values.push_back(*value);
    }
    member(recipe) = values;
    return "";
  };
  const auto write = [=](const Recipe& recipe) {
    std::vector<std::string> quoted;
    for (const std::string& word : constant(member, recipe)) quoted.push_back(yaml_quoted(word));
    return fmt::format("[{}]", fmt::join(quoted, ", "));
  };
  return {.key = key, .doc = doc, .read = read, .write = write, .is_list = true};
}

Field bytes(std::string key, std::string doc, std::string expected, Member<int64_t> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto value = node.IsScalar() ? parse_bytes(node.Scalar()) : std::nullopt;
    if (!value) return expected;
    member(recipe) = *value;
    return "";
  };
  return {.key = key, .doc = doc, .read = read, .write = [=](const Recipe& recipe) {
            return std::to_string(constant(member, recipe));
          }};
}

}  // namespace hearth::recipe
