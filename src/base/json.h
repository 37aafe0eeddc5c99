#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_reader.h"

namespace hearth {

/// What becomes of a value that JSON may hold and nlohmann::json cannot: one nested more than kMaxJsonDepth
/// deep, a number that no double holds, and, where such values are discarded, an integer beyond 64 bits.
enum class Unreadable {
  refused,    ///< there is no value
  discarded,  ///< is_discarded() in its place, so that only a reader of it has to refuse; see is_readable
};

/// The value that JSON text in UTF-8 holds, nothing where it holds none; `fault` then gets the sentence that
/// says why ("expected JSON in UTF-8, but it breaks at byte 7 of 9"). Read in one pass, in time linear in the
/// size of the text however many keys an object has; of equal keys the last counts, as in Python. Value:
/// nlohmann::json or nlohmann::ordered_json.
template <typename Value>
std::optional<Value> parse_json(std::string_view text, std::string* fault = nullptr,
                                Unreadable unreadable = Unreadable::refused);

/// The JSON object that text holds; UserError naming `where` when it holds none.
template <typename Value>
Value parse_json_object(std::string_view text, std::string_view where);

/// Whether nothing in the value was discarded.
bool is_readable(const nlohmann::ordered_json& value);

}  // namespace hearth
