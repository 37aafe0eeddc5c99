#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja.h"

namespace hearth::text {

/// The value that JSON text in UTF-8 holds, read in one pass, in time linear in its size however many keys an
/// object has; of equal keys the last counts, as in Python. Nothing where the text holds no value: `fault`
/// then says why. What JSON may hold and Json cannot (numbers beyond 64 bits, values nested more than
/// kMaxJsonDepth deep) is discarded in its place, so that only a reader of it has to refuse; see is_readable.
std::optional<Json> read_json_text(std::string_view text, std::string& fault);

/// Whether nothing in the value had to be discarded.
bool is_readable(const Json& value);

}  // namespace hearth::text
