#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/library.h"

namespace hearth::text::jinja {

/// Python's str methods of these names. Case conversion fails for the few letters whose other case is more
/// than one letter.
std::string upper(Run& run, std::string_view text);
std::string lower(Run& run, std::string_view text);
std::string title(Run& run, std::string_view text);
std::string capitalize(Run& run, std::string_view text);
/// Replaces at most `count` occurrences of `old`; all if `count` is -1.
std::string replace(Run& run, std::string_view text, std::string_view old, std::string_view with,
                    int64_t count);

}  // namespace hearth::text::jinja
