#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_reader.h"

namespace hearth {

/// Treatment of valid JSON values that nlohmann::json cannot represent: values nested deeper than
/// kMaxJsonDepth, numbers outside the range of double and, with `discarded`, integers beyond 64 bits.
enum class Unreadable {
  refused,  ///< parse_json returns nullopt
  /// The value becomes one for which is_discarded() is true. Only code that uses the value must check
  /// is_readable().
  discarded,
};

/// Parses JSON text in UTF-8. Returns nullopt if it is invalid; `fault` then receives the reason ("expected
/// JSON in UTF-8, but it breaks at byte 7 of 9"). Takes time linear in the size of the text, for any number
/// of keys. If a key occurs several times, the last value counts, as in Python. Value: nlohmann::json or
/// nlohmann::ordered_json.
template <typename Value>
std::optional<Value> parse_json(std::string_view text, std::string* fault = nullptr,
                                Unreadable unreadable = Unreadable::refused);

/// Parses text that must be a JSON object; UserError with `where` if it is not.
template <typename Value>
Value parse_json_object(std::string_view text, std::string_view where);

/// True if no part of the value was discarded.
bool is_readable(const nlohmann::ordered_json& value);

}  // namespace hearth
