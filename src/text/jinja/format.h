#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/jinja/library.h"

namespace hearth::text::jinja {

/// Arguments of a variadic call.
struct FormatArguments {
  std::span<const Value> values;       ///< values of the positional arguments, then of the named ones
  std::span<const std::string> names;  ///< names of the last values

  std::span<const Value> positional() const { return values.first(values.size() - names.size()); }
};

/// Implements Python's str.format: fields with attributes and items, !r and !s, format specifications of
/// strings and numbers. Fails for nested fields.
Value format_by_braces(Run& run, const Value& subject, const FormatArguments& arguments);
/// Implements Python's `subject % arguments`; named arguments are for %(name)s.
Value format_by_percent(Run& run, const Value& subject, const FormatArguments& arguments);

}  // namespace hearth::text::jinja
