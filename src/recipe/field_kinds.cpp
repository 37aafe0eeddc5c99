#include "recipe/field_kinds.h"

#include <fmt/ranges.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text.h"
#include "base/yaml.h"

namespace hearth::recipe {
namespace {

/// Parses a scalar as a number; nullopt for inf, nan, values out of range and other text.
template <typename T>
std::optional<T> number_of(const YAML::Node& node) {
  if (!node.IsScalar()) return std::nullopt;
  const std::string& text = node.Scalar();
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value)) return std::nullopt;
  }
  return value;
}

/// Returns the text of a scalar, "" for null; nullopt if the node is not a scalar or contains a NUL byte.
std::optional<std::string> text_of(const YAML::Node& node) {
  if (node.IsNull()) return "";
  if (!node.IsScalar() || node.Scalar().find('\0') != std::string::npos) return std::nullopt;
  return node.Scalar();
}

template <typename T>
std::string read_real(const YAML::Node& node, T& value, RealRange limits) {
  const auto number = number_of<T>(node);
  const auto fits = [&](T x) { return x >= static_cast<T>(limits.min) && x < static_cast<T>(limits.below); };
  if (!number || !fits(*number)) return fmt::format("a number from {} to below {}", limits.min, limits.below);
  value = *number;
  return "";
}

template <typename T>
std::string read_numbers(const YAML::Node& node, std::vector<T>& value) {
  std::vector<T> numbers;
  if (!node.IsSequence()) return "a list like [1, 2]";
  for (const YAML::Node& item : node) {
    const auto number = number_of<T>(item);
    if (!number) return "a list of finite numbers like [1, 2]";
    numbers.push_back(*number);
  }
  value = std::move(numbers);
  return "";
}

}  // namespace

std::string read_value(const YAML::Node& node, uint64_t& value) {
  const auto number = number_of<uint64_t>(node);
  if (!number) return fmt::format("a whole number from 0 to {}", std::numeric_limits<uint64_t>::max());
  value = *number;
  return "";
}

std::string read_value(const YAML::Node& node, int64_t& value, IntegerRange limits) {
  const auto number = number_of<int64_t>(node);
  if (!number || *number < limits.min || *number > limits.max)
    return fmt::format("a whole number from {} to {}", limits.min, limits.max);
  value = *number;
  return "";
}

std::string read_value(const YAML::Node& node, int64_t& value, Bytes limits) {
  const auto number = node.IsScalar() ? parse_bytes(node.Scalar()) : std::nullopt;
  if (!number) return limits.expected;
  value = *number;
  return "";
}

std::string read_value(const YAML::Node& node, Extent& value, SideRange limits) {
  std::vector<int64_t> sides;
  if (const auto side = number_of<int64_t>(node)) {
    sides = {*side, *side};
  } else if (!read_numbers(node, sides).empty() || sides.size() != 2) {
    sides.clear();
  }
  const auto fits = [&](int64_t side) { return side >= limits.min && side <= limits.max; };
  if (sides.empty() || !std::ranges::all_of(sides, fits))
    return fmt::format("a whole number from {} to {}, or two as [width, height]", limits.min, limits.max);
  value = {sides[1], sides[0]};
  return "";
}

std::string read_value(const YAML::Node& node, double& value, RealRange limits) {
  return read_real(node, value, limits);
}

std::string read_value(const YAML::Node& node, double& value, Fraction) {
  const auto number = number_of<double>(node);
  if (!number || *number < 0 || *number > 1) return "a number from 0 to 1";
  value = *number;
  return "";
}

std::string read_value(const YAML::Node& node, float& value, RealRange limits) {
  return read_real(node, value, limits);
}

std::string read_value(const YAML::Node& node, bool& value) {
  return YAML::convert<bool>::decode(node, value) ? "" : "true or false";
}

std::string read_value(const YAML::Node& node, std::string& value) {
  const auto text = text_of(node);
  if (!text) return "one word or path";
  value = *text;
  return "";
}

std::string read_value(const YAML::Node& node, fs::path& value) {
  const auto text = text_of(node);
  if (!text) return "a folder";
  value = *text;
  return "";
}

std::string read_value(const YAML::Node& node, std::vector<int64_t>& value) {
  return read_numbers(node, value);
}

std::string read_value(const YAML::Node& node, std::vector<float>& value) {
  return read_numbers(node, value);
}

std::string read_value(const YAML::Node& node, std::vector<std::string>& value) {
  std::vector<std::string> words;
  if (!node.IsSequence()) return "a list like [a, b]";
  for (const YAML::Node& item : node) {
    const auto word = text_of(item);
    if (!word) return "a list of words like [a, b]";
    words.push_back(*word);
  }
  value = std::move(words);
  return "";
}

std::string read_value(const YAML::Node& node, std::vector<std::string>& value, OneOrMore) {
  if (!node.IsScalar()) return read_value(node, value);
  value = {node.Scalar()};
  return "";
}

std::string read_name(const YAML::Node& node, std::string& value, std::span<const std::string> names) {
  const auto text = text_of(node);
  if (!text) return "one word or path";
  if (!names.empty() && std::ranges::find(names, *text) == names.end()) {
    constexpr size_t kMaxShown = 16;
    const std::string near = did_you_mean(*text, names);
    if (names.size() > kMaxShown && !near.empty())
      return fmt::format("one of {} names{}", names.size(), near);
    std::vector<std::string> shown;
    for (const std::string& name : names) shown.push_back(name.empty() ? "\"\"" : name);
    return fmt::format("one of {}{}", fmt::join(shown, ", "), near);
  }
  value = *text;
  return "";
}

std::string read_name(const YAML::Node& node, size_t& value, std::span<const std::string_view> names) {
  std::string name;
  const std::vector<std::string> all(names.begin(), names.end());
  std::string expected = read_name(node, name, all);
  if (expected.empty()) value = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
  return expected;
}

std::string read_names(const YAML::Node& node, std::vector<size_t>& value,
                       std::span<const std::string_view> names) {
  std::vector<std::string> words;
  if (std::string expected = read_value(node, words, OneOrMore()); !expected.empty()) return expected;
  for (const std::string& word : words) {
    size_t number = 0;
    const std::string expected = read_name(YAML::Node(word), number, names);
    if (!expected.empty()) return "a list with " + expected;
    if (std::ranges::find(value, number) == value.end()) value.push_back(number);
  }
  return "";
}

std::string read_device(const YAML::Node& node, std::string& value, const Choices& choices) {
  const std::string name = node.IsScalar() ? node.Scalar() : "";
  if (name != kCpu && choices.is_gpu != nullptr && !choices.is_gpu(name))
    return "cpu, gpu, gpu:0, gpu:0000:03:00.0 or emulated";
  value = name;
  return "";
}

std::string write_value(uint64_t value) { return std::to_string(value); }
std::string write_value(int64_t value) { return std::to_string(value); }
std::string write_value(Extent value) {
  if (value.width == value.height) return write_value(value.width);
  return fmt::format("[{}, {}]", value.width, value.height);
}
std::string write_value(double value) { return fmt::format("{}", value); }
std::string write_value(float value) { return fmt::format("{}", value); }
std::string write_value(bool value) { return value ? "true" : "false"; }
std::string write_value(const std::string& value) { return yaml_quoted(value); }
std::string write_value(const fs::path& value) { return yaml_quoted(value.string()); }

std::string write_value(const std::vector<int64_t>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}

std::string write_value(const std::vector<float>& value) {
  return fmt::format("[{}]", fmt::join(value, ", "));
}

std::string write_value(const std::vector<std::string>& value) {
  std::vector<std::string> quoted;
  for (const std::string& word : value) quoted.push_back(yaml_quoted(word));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

}  // namespace hearth::recipe
