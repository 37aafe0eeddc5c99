#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja.h"

namespace hearth::serve {

/// Parses the body of a request. Throws a UserError if it is not a JSON object.
text::Json parse_body(std::string_view body);
/// Returns the value of a field with this name; nullptr if it is missing or null.
const text::Json* field_of(const text::Json& object, const char* name);
/// Returns a string field, or `fallback` if it is missing. Throws a UserError for other types.
std::string string_field(const text::Json& object, const char* name, std::string fallback);
/// Returns a boolean field, or `fallback` if it is missing. Throws a UserError for other types.
bool bool_field(const text::Json& object, const char* name, bool fallback);
/// Returns a number field, or `fallback` if it is missing. Throws a UserError for other types and for values
/// outside of [min, max].
double number_field(const text::Json& object, const char* name, double fallback, double min, double max);
int64_t integer_field(const text::Json& object, const char* name, int64_t fallback, int64_t min, int64_t max);
/// Parses a list of token ids. `name`: field that contains the list, for error messages.
std::vector<int32_t> parse_ids(const text::Json& ids, const char* name);
/// Formats JSON in one line. Replaces bytes that are not UTF-8.
std::string dumped(const text::Json& json);

}  // namespace hearth::serve
