#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace hearth {
namespace {

/// The deepest nesting of brackets outside of strings.
int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

template <typename Value>
std::optional<Value> parse(std::string_view text, std::string& fault) {
  if (depth_of(text) > kMaxJsonDepth) {
    fault = fmt::format("expected JSON nested at most {} deep", kMaxJsonDepth);
    return std::nullopt;
  }
  try {
    return Value::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    fault = fmt::format("expected JSON in UTF-8, but it breaks at byte {} of {}",
                        std::min(error.byte, text.size()), text.size());
  } catch (const nlohmann::json::exception&) {
    fault = "expected JSON, but a number in it is out of range";
  }
  return std::nullopt;
}

}  // namespace

template <typename Value>
std::optional<Value> parse_json(std::string_view text, std::string* fault) {
  std::string unheard;
  return parse<Value>(text, fault == nullptr ? unheard : *fault);
}

template <typename Value>
Value parse_json_object(std::string_view text, std::string_view where) {
  std::string fault;
  std::optional<Value> value = parse_json<Value>(text, &fault);
  if (!value) user_error("{}: {}", where, fault);
  if (!value->is_object()) user_error("{}: expected a JSON object, got {}", where, value->type_name());
  return *std::move(value);
}

template std::optional<nlohmann::json> parse_json(std::string_view, std::string*);
template std::optional<nlohmann::ordered_json> parse_json(std::string_view, std::string*);
template nlohmann::json parse_json_object(std::string_view, std::string_view);
template nlohmann::ordered_json parse_json_object(std::string_view, std::string_view);

}  // namespace hearth
