#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>

namespace hearth::text::jinja {

Value Value::undefined(std::string name) { return Value(Undefined{std::move(name)}, 0); }

Value Value::boolean(bool value) {
  static const Json kTrue = true;
  static const Json kFalse = false;
  return view(value ? kTrue : kFalse);
}

Value Value::part(const Json& json) const {
  Value found(std::shared_ptr<const Json>(std::get<std::shared_ptr<const Json>>(data_), &json), 0);
  if (print_type_ == PrintType::tuples || print_type_ == PrintType::items)
    found.print_type_ = PrintType::tuple;
  return found;
}

const Json* Value::json() const {
  const auto* found = std::get_if<std::shared_ptr<const Json>>(&data_);
  return found != nullptr ? found->get() : nullptr;
}

Namespace* Value::namespace_object() const {
  const auto* found = std::get_if<Namespace*>(&data_);
  return found != nullptr ? *found : nullptr;
}

const Loop* Value::loop() const {
  const auto* found = std::get_if<std::shared_ptr<const Loop>>(&data_);
  return found != nullptr ? found->get() : nullptr;
}

const Macro* Value::macro() const { return std::get_if<Macro>(&data_); }

bool Value::is_callable() const {
  return std::holds_alternative<Macro>(data_) || std::holds_alternative<const Builtin*>(data_);
}

std::optional<std::string_view> Value::string() const {
  const Json* found = json();
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return found->get_ref<const std::string&>();
}

namespace {
constexpr char kIntegerKey = '\xff';
}  // namespace

std::optional<std::string> key_in_mapping(const Value& key) {
  if (key.string()) return std::string(*key.string());
  if (key.json() == nullptr || !key.json()->is_number_integer()) return std::nullopt;
  return kIntegerKey + std::to_string(key.json()->get<int64_t>());
}

Json key_of_mapping(std::string_view name) {
  if (!name.starts_with(kIntegerKey)) return name;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), value);
  return error == std::errc() && end == name.data() + name.size() ? Json(value) : Json(name);
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
    return value.namespace_object() != nullptr ? "a namespace"
           : value.loop() != nullptr           ? "loop"
                                               : "a function";
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

using Entries = std::vector<std::pair<std::string_view, const Json*>>;

Entries sorted_entries(const Json& object) {
  Entries entries;
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) entries.emplace_back(key, &value);
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return entries;
}

bool equal_objects(const Json& a, const Json& b) {
  if (a.size() != b.size()) return false;
  const Entries x = sorted_entries(a), y = sorted_entries(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const auto& left, const auto& right) {
    return left.first == right.first && equal(*left.second, *right.second);
  });
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
  Weight weight{.work = 4};
  if (json.is_string()) weight.work += std::ssize(json.get_ref<const std::string&>()) / 16;
  if (json.is_object()) {
    for (const auto& [key, part] : json.get_ref<const Json::object_t&>())
      weight.work += 4 + std::ssize(key) / 16;
  }
  if (!json.is_structured()) return weight;
  for (const Json& part : json) {
    const Weight inner = weigh(part);
    weight.work += inner.work;
    weight.depth = std::max(weight.depth, inner.depth + 1);
  }
  return weight;
}

int64_t num_parts(const Json& json) {
  int64_t count = json.is_object() ? std::ssize(json) + 1 : 1;
  if (!json.is_structured()) return count;
  for (const Json& part : json) count += num_parts(part);
  return count;
}

}  // namespace hearth::text::jinja
