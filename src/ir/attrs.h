#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hearth::ir {

/// Value of an attribute: an integer, a real number, text, or a list of numbers.
using Attr = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

/// The constant attributes of a node, in insertion order. Reading an attribute that is missing or has another
/// type throws InternalError; the functions `*_or` return a default if it is missing.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> entries) : entries_(entries) {}

  int64_t integer(std::string_view name) const;
  int64_t integer_or(std::string_view name, int64_t fallback) const;
  double real(std::string_view name) const;
  double real_or(std::string_view name, double fallback) const;
  const std::string& text(std::string_view name) const;
  std::string text_or(std::string_view name, std::string_view fallback) const;
  const std::vector<int64_t>& list(std::string_view name) const;
  const std::vector<double>& reals(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Adds the attribute or replaces its value.
  void set(std::string_view name, Attr value);
  const std::vector<std::pair<std::string, Attr>>& entries() const { return entries_; }
  bool operator==(const Attrs&) const = default;

 private:
  const Attr* find(std::string_view name) const;

  std::vector<std::pair<std::string, Attr>> entries_;
};

}  // namespace hearth::ir
