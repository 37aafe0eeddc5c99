#include "text/jinja/value.h"

#include <algorithm>

namespace hearth::text::jinja {

Value Value::undefined(std::string name) { return Value(Undefined{std::move(name)}, 0); }

Value Value::boolean(bool value) {
  static const Json kTrue = true;
  static const Json kFalse = false;
  return view(value ? kTrue : kFalse);
}

Value Value::part(const Json& json) const {
  return Value(std::shared_ptr<const Json>(std::get<std::shared_ptr<const Json>>(data_), &json), 0);
}

const Json* Value::json() const {
  const auto* found = std::get_if<std::shared_ptr<const Json>>(&data_);
  return found != nullptr ? found->get() : nullptr;
}

Space* Value::space() const {
  const auto* found = std::get_if<std::shared_ptr<Space>>(&data_);
  return found != nullptr ? found->get() : nullptr;
}

const Loop* Value::loop() const {
  const auto* found = std::get_if<std::shared_ptr<const Loop>>(&data_);
  return found != nullptr ? found->get() : nullptr;
}

const Statement* Value::macro() const {
  const auto* found = std::get_if<const Statement*>(&data_);
  return found != nullptr ? *found : nullptr;
}

bool Value::is_callable() const {
  return std::holds_alternative<const Statement*>(data_) || std::holds_alternative<const Builtin*>(data_);
}

std::optional<std::string_view> Value::string() const {
  const Json* found = json();
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return found->get_ref<const std::string&>();
}

bool is_true(const Value& value) {
  const Json* json = value.json();
  if (json == nullptr) return !value.is_undefined();
  if (json->is_string()) return !json->get_ref<const std::string&>().empty();
  if (json->is_structured()) return !json->empty();
  return number_of(*json).value_or(0) != 0;
}

std::string kind_of(const Value& value) {
  if (value.is_undefined()) {
    return value.undefined_name().empty() ? "an undefined value"
                                          : "'" + value.undefined_name() + "', which is undefined";
  }
  const Json* json = value.json();
  if (json == nullptr)
    return value.space() != nullptr ? "a namespace" : value.loop() != nullptr ? "loop" : "a function";
  switch (json->type()) {
    case Json::value_t::null:
      return "none";
    case Json::value_t::object:
      return "a mapping";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    default:
      return "a number";
  }
}

std::optional<int64_t> integer_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json.is_number_integer()) return json.get<int64_t>();
  return std::nullopt;
}

std::optional<double> number_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>() ? 1 : 0;
  if (json.is_number()) return json.get<double>();
  return std::nullopt;
}

std::optional<int64_t> integer_of(const Value& value) {
  return value.json() != nullptr ? integer_of(*value.json()) : std::nullopt;
}

std::optional<double> number_of(const Value& value) {
  return value.json() != nullptr ? number_of(*value.json()) : std::nullopt;
}

namespace {

bool equal_objects(const Json& a, const Json& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.items()) {
    const auto found = b.find(key);
    if (found == b.end() || !equal(value, *found)) return false;
  }
  return true;
}

}  // namespace

bool equal(const Json& a, const Json& b) {
  if (a.is_object() && b.is_object()) return equal_objects(a, b);
  if (a.is_array() && b.is_array()) return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
  if (a.is_string() || b.is_string()) {
    return a.is_string() && b.is_string() &&
           a.get_ref<const std::string&>() == b.get_ref<const std::string&>();
  }
  if (a.is_null() || b.is_null()) return a.is_null() && b.is_null();
  if (const auto x = integer_of(a), y = integer_of(b); x && y) return *x == *y;
  const auto x = number_of(a), y = number_of(b);
  return x && y && *x == *y;
}

Weight weigh(const Json& json) {
  Weight weight{.work = 1};
  if (json.is_string()) weight.work += std::ssize(json.get_ref<const std::string&>()) / 16;
  if (!json.is_structured()) return weight;
  for (const Json& part : json) {
    const Weight inner = weigh(part);
    weight.work += inner.work;
    weight.depth = std::max(weight.depth, inner.depth + 1);
  }
  return weight;
}

}  // namespace hearth::text::jinja
