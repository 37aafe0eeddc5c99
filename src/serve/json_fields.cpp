#include "serve/json_fields.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/json.h"

namespace hearth::serve {

using text::Json;

Json parse_body(std::string_view body) { return parse_json_object<Json>(body, "request"); }

const Json* field_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string string_field(const Json& object, const char* name, std::string fallback) {
  const Json* value = field_of(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_string()) user_error("{}: expected a string", name);
  return value->get<std::string>();
}

bool bool_field(const Json& object, const char* name, bool fallback) {
  const Json* value = field_of(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) user_error("{}: expected true or false", name);
  return value->get<bool>();
}

double number_field(const Json& object, const char* name, double fallback, double min, double max) {
  const Json* value = field_of(object, name);
  if (value == nullptr) return fallback;
  if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max))
    user_error("{}: expected a number from {} to {}", name, min, max);
  return value->get<double>();
}

int64_t integer_field(const Json& object, const char* name, int64_t fallback, int64_t min, int64_t max) {
  const Json* value = field_of(object, name);
  if (value == nullptr) return fallback;
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(max));
  if (!fits || value->get<int64_t>() < min || value->get<int64_t>() > max)
    user_error("{}: expected a whole number from {} to {}", name, min, max);
  return value->get<int64_t>();
}

std::vector<int32_t> parse_ids(const Json& ids, const char* name) {
  std::vector<int32_t> parsed;
  const auto is_id = [](const Json& id) {
    return id.is_number_unsigned() && id.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
  };
  if (!ids.is_array() || !std::ranges::all_of(ids, is_id))
    user_error("{}: expected a list of token ids", name);
  for (const Json& id : ids) parsed.push_back(id.get<int32_t>());
  return parsed;
}

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace hearth::serve
