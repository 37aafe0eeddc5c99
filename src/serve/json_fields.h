#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja.h"

namespace hearth::serve {

/// Parses the body of a request; UserError if it is not a JSON object.
text::Json parse_body(std::string_view body);
/// Returns the value of a field with this name; nullptr if it is missing or null.
const text::Json* field_of(const text::Json& object, const char* name);
/// Returns a string field, or `fallback` if it is missing; UserError for other types.
std::string string_field(const text::Json& object, const char* name, std::string fallback);
bool bool_field(const text::Json& object, const char* name, bool fallback);
/// Returns a number in [min, max], or `fallback`; UserError otherwise.
double number_field(const text::Json& object, const char* name, double fallback, double min, double max);
int64_t integer_field(const text::Json& object, const char* name, int64_t fallback, int64_t min, int64_t max);
/// Parses a list of token ids.
std::vector<int32_t> parse_ids(const text::Json& ids, const char* name);
/// Formats JSON in one line; bytes that are not UTF-8 are replaced.
std::string dumped(const text::Json& json);

}  // namespace hearth::serve
