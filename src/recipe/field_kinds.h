#pragma once

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "recipe/fields.h"

namespace hearth::recipe {

/// Where a recipe keeps a field's value.
template <typename T>
using Member = std::function<T&(Recipe&)>;

/// Fields by what their values are; each says what was expected of one that does not fit.
Field integer(std::string key, std::string doc, Member<int64_t> member, int64_t least,
              int64_t most = int64_t{1} << 40);
Field real(std::string key, std::string doc, Member<double> member, double least, double below);
Field boolean(std::string key, std::string doc, Member<bool> member);
/// `choices` limits it when not empty.
Field text(std::string key, std::string doc, Member<std::string> member,
           std::vector<std::string> choices = {});
/// A list of int64_t or float, written [a, b].
template <typename T>
Field numbers(std::string key, std::string doc, Member<std::vector<T>> member);
Field words(std::string key, std::string doc, Member<std::vector<std::string>> member);
/// `expected`: what it says of a size that does not fit.
Field bytes(std::string key, std::string doc, std::string expected, Member<int64_t> member);

/// The number that the whole text of a scalar is; nothing for inf, nan and whatever does not fit.
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

/// The text of a scalar, "" for null; nothing where it is no scalar.
std::optional<std::string> text_of(const YAML::Node& node);

}  // namespace hearth::recipe
