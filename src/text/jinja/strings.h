#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/library.h"

namespace hearth::text::jinja {

/// Implement Python's str methods of the same names. They fail for the few letters whose other case has more
/// than one letter.
std::string upper(Run& run, std::string_view text);
std::string lower(Run& run, std::string_view text);
std::string title(Run& run, std::string_view text);
std::string capitalize(Run& run, std::string_view text);
/// Replaces `old` by `with`, at most `count` times; -1: everywhere.
std::string replace(Run& run, std::string_view text, std::string_view old, std::string_view with,
                    int64_t count);

}  // namespace hearth::text::jinja
