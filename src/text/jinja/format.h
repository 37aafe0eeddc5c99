#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/jinja/library.h"

namespace hearth::text::jinja {

/// Arguments of a call with any number of them.
struct FormatArguments {
  std::span<const Value> values;       ///< positional, then named
  std::span<const std::string> names;  ///< of the last values

  std::span<const Value> positional() const { return values.first(values.size() - names.size()); }
};

/// str.format of Python: fields, their attributes and items, !r and !s, format specifications of strings and
/// numbers. Fails for nested fields.
Value format_by_braces(Run& run, const Value& subject, const FormatArguments& arguments);
/// subject % arguments of Python; named arguments are for %(name)s.
Value format_by_percent(Run& run, const Value& subject, const FormatArguments& arguments);

}  // namespace hearth::text::jinja
