#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace hearth {

/// How deep objects and lists in JSON from a file may nest.
constexpr int kMaxJsonDepth = 64;

/// The value that JSON text in UTF-8 holds, nothing where it holds none; `fault` then gets the sentence that
/// says why ("expected JSON in UTF-8, but it breaks at byte 7 of 9"). Value: nlohmann::json or
/// nlohmann::ordered_json.
template <typename Value>
std::optional<Value> parse_json(std::string_view text, std::string* fault = nullptr);

/// The JSON object that text holds; UserError naming `where` when it holds none.
template <typename Value>
Value parse_json_object(std::string_view text, std::string_view where);

}  // namespace hearth
