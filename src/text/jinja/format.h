#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/jinja/library.h"

namespace hearth::text::jinja {

/// Arguments of a call with any number of arguments.
struct FormatArguments {
  std::span<const Value> values;       ///< values of the positional arguments, then of the named ones
  std::span<const std::string> names;  ///< names of the named arguments, which are the last of `values`

  std::span<const Value> positional() const { return values.first(values.size() - names.size()); }
};

/// Implements Python's str.format: fields with attributes and items, !r and !s, and format specifications of
/// strings and numbers. Nested fields are an error.
Value format_by_braces(Run& run, const Value& subject, const FormatArguments& arguments);
/// Implements Python's `subject % arguments`. Named arguments are used for %(name)s.
Value format_by_percent(Run& run, const Value& subject, const FormatArguments& arguments);

}  // namespace hearth::text::jinja
