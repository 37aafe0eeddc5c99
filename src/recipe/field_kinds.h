#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "recipe/field.h"

namespace hearth::recipe {

// Limits of the values of keys. Each struct below is for one kind of key.

/// Integers in [min, max].
struct IntegerRange {
  int64_t min;
  int64_t max = int64_t{1} << 40;
};
/// Image size in pixels: the side of a square, or [width, height]; each in [min, max].
struct SideRange {
  int64_t min;
  int64_t max;
};
/// Numbers in [min, below).
struct RealRange {
  double min;
  double below;
};
/// Numbers in [0, 1].
struct Fraction {};
/// A number of bytes with a unit, such as 20GiB. `expected`: description of a valid value, for messages.
struct Bytes {
  const char* expected;
};
/// One of the names in Choices::names for the key. `extra_text`: text that messages append to the list of
/// names.
struct Named {
  const char* extra_text = "";
};
/// Name of a device: "cpu" or a GPU.
struct Device {};
/// A list of words, or a single word.
struct OneOrMore {};

/// Parse `node` into `value`, according to its type and `limits`. Return "" if the value is valid, otherwise
/// a description of the expected value.
std::string read_value(const YAML::Node& node, uint64_t& value);
std::string read_value(const YAML::Node& node, int64_t& value, IntegerRange limits);
std::string read_value(const YAML::Node& node, int64_t& value, Bytes limits);
std::string read_value(const YAML::Node& node, Extent& value, SideRange limits);
std::string read_value(const YAML::Node& node, double& value, RealRange limits);
std::string read_value(const YAML::Node& node, double& value, Fraction limits);
std::string read_value(const YAML::Node& node, float& value, RealRange limits);
std::string read_value(const YAML::Node& node, bool& value);
std::string read_value(const YAML::Node& node, std::string& value);
std::string read_value(const YAML::Node& node, fs::path& value);
std::string read_value(const YAML::Node& node, std::vector<int64_t>& value);
std::string read_value(const YAML::Node& node, std::vector<float>& value);
std::string read_value(const YAML::Node& node, std::vector<std::string>& value);
std::string read_value(const YAML::Node& node, std::vector<std::string>& value, OneOrMore limits);
/// Parses one of `names` (empty: any text) into `value`. Returns "" or a description of the expected value.
std::string read_name(const YAML::Node& node, std::string& value, std::span<const std::string> names);
std::string read_name(const YAML::Node& node, size_t& value, std::span<const std::string_view> names);
/// Parses a list of `names`, or one name, into the indices of the names, each once.
std::string read_names(const YAML::Node& node, std::vector<size_t>& value,
                       std::span<const std::string_view> names);
std::string read_device(const YAML::Node& node, std::string& value, const Choices& choices);

/// Return a value as YAML text, quoted if necessary.
std::string write_value(uint64_t value);
std::string write_value(int64_t value);
std::string write_value(Extent value);
std::string write_value(double value);
std::string write_value(float value);
std::string write_value(bool value);
std::string write_value(const std::string& value);
std::string write_value(const fs::path& value);
std::string write_value(const std::vector<int64_t>& value);
std::string write_value(const std::vector<float>& value);
std::string write_value(const std::vector<std::string>& value);

template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <>
inline constexpr bool kIsList<Extent> = true;
template <typename T>
inline constexpr bool kIsEnumList = false;
template <typename T>
inline constexpr bool kIsEnumList<std::vector<T>> = std::is_enum_v<T>;

/// Adds the keys of one section to a list of fields. `S`: struct of the section, such as Train; `At`:
/// function that returns a recipe's member of this type.
template <typename S, typename At>
class Section {
 public:
  Section(std::vector<Field>& fields, std::string prefix, At at)
      : fields_(fields), prefix_(std::move(prefix)), at_(at) {}

  /// Adds the key `name`, stored in `member`. The type of the member and `limits` determine the allowed
  /// values.
  template <typename T, typename... Limits>
  Field& operator()(const char* name, const char* doc, T S::*member, Limits... limits) const {
    const std::string key = prefix_ + name;
    const auto read = [=, at = at_](Recipe& recipe, const YAML::Node& node, const Choices& choices) {
      return read_field(key, node, at(recipe).*member, choices, limits...);
    };
    const auto write = [=, at = at_](const Recipe& recipe) { return write_field(at(recipe).*member); };
    fields_.push_back({.key = key, .doc = doc, .read = read, .write = write, .is_list = kIsList<T>});
    return fields_.back();
  }

 private:
  template <typename T, typename... Limits>
  static std::string read_field(const std::string&, const YAML::Node& node, T& value, const Choices&,
                                Limits... limits) {
    if constexpr (std::is_enum_v<T>) {
      size_t number = 0;
      std::string expected = read_name(node, number, kNames<T>);
      if (expected.empty()) value = value_of<T>(number);
      return expected;
    } else if constexpr (kIsEnumList<T>) {
      std::vector<size_t> numbers;
      std::string expected = read_names(node, numbers, kNames<typename T::value_type>);
      if (!expected.empty()) return expected;
      value.clear();
      for (const size_t number : numbers) value.push_back(value_of<typename T::value_type>(number));
      return "";
    } else {
      return read_value(node, value, limits...);
    }
  }
  static std::string read_field(const std::string& key, const YAML::Node& node, std::string& value,
                                const Choices& choices, Named limits) {
    const std::string expected = read_name(node, value, choices.of(key));
    return expected.empty() ? "" : expected + limits.extra_text;
  }
  static std::string read_field(const std::string&, const YAML::Node& node, std::string& value,
                                const Choices& choices, Device) {
    return read_device(node, value, choices);
  }

  template <typename T>
  static std::string write_field(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      return write_value(std::string(name_of(value)));
    } else if constexpr (kIsEnumList<T>) {
      std::vector<std::string> names;
      for (const auto item : value) names.emplace_back(name_of(item));
      return write_value(names);
    } else {
      return write_value(value);
    }
  }

  std::vector<Field>& fields_;
  std::string prefix_;
  At at_;
};

/// Returns an object that adds the keys of section `name`, stored in `member` of Recipe.
template <typename S>
auto section(std::vector<Field>& fields, const std::string& name, S Recipe::*member) {
  const auto at = [member](auto& recipe) -> auto& { return recipe.*member; };
  return Section<S, decltype(at)>(fields, name + ".", at);
}
/// Returns an object that adds keys outside of sections, such as "seed".
inline auto top_level(std::vector<Field>& fields) {
  const auto at = [](auto& recipe) -> auto& { return recipe; };
  return Section<Recipe, decltype(at)>(fields, "", at);
}

}  // namespace hearth::recipe
