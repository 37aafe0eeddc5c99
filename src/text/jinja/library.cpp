#include "text/jinja/library.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

constexpr int kMaxNesting = 64;

}  // namespace

Value cycled(Run& run, const Value& subject, std::span<const Value> values) {
  if (subject.loop() == nullptr || values.empty())
    run.fail(fmt::format("cycle works on loop with values, got {}", kind_of(subject)));
  return values[static_cast<size_t>(subject.loop()->index) % values.size()];
}

namespace {

Value loop_attribute(const Loop& loop, std::string_view name) {
  if (name == "index") return Json(loop.index + 1);
  if (name == "index0") return Json(loop.index);
  if (name == "revindex") return Json(loop.length - loop.index);
  if (name == "revindex0") return Json(loop.length - loop.index - 1);
  if (name == "first") return Value::boolean(loop.index == 0);
  if (name == "last") return Value::boolean(loop.index + 1 == loop.length);
  if (name == "length") return Json(loop.length);
  if (name == "depth") return Json(loop.depth);
  if (name == "depth0") return Json(loop.depth - 1);
  if (loop.items == nullptr) return Value::undefined("loop." + std::string(name));
  if (name == "previtem" && loop.index > 0) return (*loop.items)[static_cast<size_t>(loop.index - 1)];
  if (name == "nextitem" && loop.index + 1 < loop.length)
    return (*loop.items)[static_cast<size_t>(loop.index + 1)];
  return Value::undefined("loop." + std::string(name));
}

/// Converts a Python index, which is negative to count from the end, to a position from 0; nothing if it is
/// out of range.
std::optional<int64_t> position_of(int64_t index, int64_t length) {
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return index;
}

std::string character_string(std::string_view text, int64_t index) {
  const std::string_view rest = text.substr(byte_of_character(text, index));
  return std::string(rest.substr(0, first_character(rest).bytes));
}

Value item_at(Run& run, const Value& value, int64_t index) {
  const Json& json = *value.json();
  const auto position = position_of(index, length_of(run, value));
  if (!position) return Value::undefined("the item " + std::to_string(index));
  if (json.is_array()) return value.part(json[static_cast<size_t>(*position)]);
  return Json(character_string(*value.string(), *position));
}

[[noreturn]] void fail_for(Run& run, std::string_view symbol, const Value& a, const Value& b) {
  run.fail(fmt::format("cannot apply '{}' to {} and {}", symbol, kind_of(a), kind_of(b)));
}

int64_t floor_divided(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0 || exponent > 64) return std::nullopt;
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return std::nullopt;
  }
  return result;
}

/// Returns `a symbol b` for integers; nothing if the result does not fit 64 bits. For divisions, b must not
/// be 0.
std::optional<int64_t> integer_arithmetic(std::string_view symbol, int64_t a, int64_t b) {
  int64_t result = 0;
  if (symbol == "+" && !__builtin_add_overflow(a, b, &result)) return result;
  if (symbol == "-" && !__builtin_sub_overflow(a, b, &result)) return result;
  if (symbol == "*" && !__builtin_mul_overflow(a, b, &result)) return result;
  if (symbol == "**") return integer_power(a, b);
  if (b == -1) return std::nullopt;
  if (symbol == "//") return floor_divided(a, b);
  if (symbol == "%") return a - floor_divided(a, b) * b;
  return std::nullopt;
}

/// Returns a % b as Python does: the exact remainder, with the sign of b.
double real_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_arithmetic(std::string_view symbol, double a, double b) {
  if (symbol == "+") return a + b;
  if (symbol == "-") return a - b;
  if (symbol == "*") return a * b;
  if (symbol == "/") return a / b;
  if (symbol == "//") return std::round((a - real_remainder(a, b)) / b);
  if (symbol == "%") return real_remainder(a, b);
  return std::pow(a, b);
}

Value number_arithmetic(Run& run, std::string_view symbol, const Json& a, const Json& b) {
  const bool divides = symbol == "/" || symbol == "//" || symbol == "%";
  if (divides && *number_of(b) == 0) run.fail("division by zero");
  const auto x = integer_of(a), y = integer_of(b);
  if (!x || !y || symbol == "/") return Json(real_arithmetic(symbol, *number_of(a), *number_of(b)));
  if (divides && *y == -1) return Json(symbol == "%" ? 0 : -static_cast<double>(*x));
  const auto result = integer_arithmetic(symbol, *x, *y);
  if (!result) run.fail(fmt::format("{} {} {} is not a number of 64 bits", *x, symbol, *y));
  return Json(*result);
}

Value repeated(Run& run, const Json& what, int64_t count) {
  count = std::max<int64_t>(count, 0);
  const Weight weight = weigh(what);
  run.spend(count > run.options().limit_work / weight.work ? run.options().limit_work + 1
                                                           : count * weight.work);
  Json result = what.is_array() ? Json::array() : Json(std::string());
  for (int64_t i = 0; i < count; ++i) {
    if (what.is_array()) {
      result.insert(result.end(), what.begin(), what.end());
    } else {
      result.get_ref<std::string&>() += what.get_ref<const std::string&>();
    }
  }
  return result;
}

/// Range of positions of a slice: from `first` to `last` (exclusive) with distance `step`.
struct SlicePositions {
  int64_t first = 0;
  int64_t last = 0;
  int64_t step = 1;
};

/// Returns the positions that a Python slice [first:last:step] selects from a sequence of `length` items.
/// `bounds`: these three values.
SlicePositions slice_positions(Run& run, std::span<const Value> bounds, int64_t length) {
  const auto given = [&](size_t which, int64_t default_value) {
    const Json* json = bounds[which].json();
    return json == nullptr || json->is_null() ? default_value : integer_argument(run, bounds[which]);
  };
  const int64_t step = given(2, 1);
  if (step == 0) run.fail("a slice's step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto clamped = [&](size_t which, int64_t default_value) {
    int64_t bound = given(which, default_value);
    const Json* json = bounds[which].json();
    if (json == nullptr || json->is_null()) return bound;
    if (bound < 0) bound = bound < -length ? low : bound + length;
    return std::clamp(bound, low, high);
  };
  const int64_t first = clamped(0, step > 0 ? 0 : length - 1);
  const int64_t last = clamped(1, step > 0 ? length : -1);
  return {first, last, step};
}

}  // namespace

void Run::spend(int64_t work) {
  if (work > work_left_)
    fail(fmt::format("the template needs more than {} operations; shorten its loops or the data",
                     options_.limit_work));
  work_left_ -= work;
  if (options_.budget == nullptr) return;
  if (work > options_.budget->left)
    fail("the template needs too many operations for data of this size; shorten its loops");
  options_.budget->left -= work;
}

void Run::spend_copy(const Json& json) {
  const Weight weight = weigh(json);
  if (weight.depth > kMaxNesting)
    fail(fmt::format("lists or mappings nested more than {} deep", kMaxNesting));
  spend(weight.work);
}

void Run::spend_search(std::string_view text, std::string_view part) {
  spend((std::ssize(text) / 16 + 1) * (std::ssize(part) / 16 + 1));
}

void Run::spend_compare(const Value& a, const Value& b) {
  if (a.string() && b.string()) return spend(std::ssize(*a.string()) / 16);
  if (a.json() != nullptr && b.json() != nullptr && a.json()->is_structured() && b.json()->is_structured())
    spend(weigh(*a.json()).work);
}

void Run::fail(std::string_view what) const { user_error("{}:{}: {}", template_name_, line_, what); }

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& entry) { return entry.name == name; });
  return found != table.end() ? &*found : nullptr;
}

size_t Builtin::num_parameters() const {
  size_t count = 0;
  while (count < parameters.size() && !parameters[count].empty()) ++count;
  return count;
}

std::string text_of(Run& run, const Value& value) {
  if (value.is_undefined()) return "";
  const Json* json = value.json();
  if (json == nullptr) run.fail(fmt::format("cannot print {}", kind_of(value)));
  if (json->is_string()) {
    run.spend(std::ssize(json->get_ref<const std::string&>()) / 16);
  } else {
    run.spend_copy(*json);
  }
  std::string text;
  if (json->is_array()) {
    append_list(text, *json, value.print_type());
  } else {
    append_str(text, *json);
  }
  return text;
}

Json json_of(Run& run, const Value& value) {
  if (value.json() == nullptr) run.fail(fmt::format("expected a value, got {}", kind_of(value)));
  run.spend_copy(*value.json());
  return *value.json();
}

std::vector<Value> items_of(Run& run, const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  const Json* json = value.json();
  if (json == nullptr || !(json->is_structured() || json->is_string())) {
    run.fail(fmt::format("cannot loop over {}", kind_of(value)));
  }
  if (json->is_array()) {
    run.spend(4 * std::ssize(*json));
    items.reserve(json->size());
    for (const Json& part : *json) items.push_back(value.part(part));
  } else if (json->is_object()) {
    for (const auto& [key, part] : json->get_ref<const Json::object_t&>()) {
      run.spend(8 + std::ssize(key) / 16);
      items.emplace_back(key_of_mapping(key));
    }
  } else {
    const std::string_view text = *value.string();
    run.spend(8 * std::ssize(text));
    for (size_t i = 0; i < text.size(); i += items.back().string()->size()) {
      items.emplace_back(Json(text.substr(i, first_character(text.substr(i)).bytes)));
    }
  }
  return items;
}

std::vector<std::pair<std::string_view, Value>> entries_of(Run& run, const Value& mapping) {
  std::vector<std::pair<std::string_view, Value>> entries;
  if (mapping.json() == nullptr || !mapping.json()->is_object())
    run.fail(fmt::format("expected a mapping as argument, got {}", kind_of(mapping)));
  for (const auto& [key, value] : mapping.json()->get_ref<const Json::object_t&>()) {
    run.spend(8 + std::ssize(key) / 16);
    entries.emplace_back(key, mapping.part(value));
  }
  return entries;
}

int64_t length_of(Run& run, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const auto text = value.string()) {
    run.spend(std::ssize(*text) / 16);
    return num_characters(*text);
  }
  if (value.json() == nullptr || !value.json()->is_structured())
    run.fail(fmt::format("{} has no length", kind_of(value)));
  return static_cast<int64_t>(value.json()->size());
}

Value attribute_of(Run& run, const Value& value, std::string_view name) {
  run.spend(1);
  if (value.is_undefined()) run.fail(fmt::format("cannot take '{}' of {}", name, kind_of(value)));
  if (const Loop* loop = value.loop()) return loop_attribute(*loop, name);
  if (const Namespace* namespace_object = value.namespace_object()) {
    const auto found = namespace_object->find(name);
    return found != namespace_object->end() ? found->second : Value::undefined(std::string(name));
  }
  if (value.macro() != nullptr) run.fail(fmt::format("'.{}' of a macro is not supported", name));
  const Json* json = value.json();
  if (json == nullptr || !json->is_object()) return Value::undefined(std::string(name));
  run.spend(static_cast<int64_t>(json->size()) / 8);
  for (const char* method : {"items", "keys", "values", "get"}) {
    if (name == method)
      run.fail(fmt::format("expected a call of .{}() here; a key of that name is ['{}']", name, name));
  }
  const auto found = json->find(name);
  return found != json->end() ? value.part(*found) : Value::undefined(std::string(name));
}

Value item_of(Run& run, const Value& value, const Value& key) {
  run.spend(1);
  if (value.is_undefined()) run.fail(fmt::format("cannot take an item of {}", kind_of(value)));
  const Json* json = value.json();
  const auto name = key.string();
  if (json == nullptr) return name ? attribute_of(run, value, *name) : Value::undefined("an item");
  if (json->is_object()) {
    run.spend(static_cast<int64_t>(json->size()) / 8);
    const auto wanted = key_in_mapping(key);
    const auto found = wanted ? json->find(*wanted) : json->end();
    return found != json->end() ? value.part(*found)
                                : Value::undefined(std::string(name.value_or("an item")));
  }
  const auto index = integer_of(key);
  if (!index || !(json->is_array() || json->is_string()))
    return Value::undefined(std::string(name.value_or("an item")));
  return item_at(run, value, *index);
}

bool is_less(Run& run, const Value& a, const Value& b) {
  run.spend_compare(a, b);
  if (a.string() && b.string()) return *a.string() < *b.string();
  const auto x = number_of(a), y = number_of(b);
  if (!x || !y) fail_for(run, "<", a, b);
  return *x < *y;
}

bool is_equal(Run& run, const Value& a, const Value& b) {
  run.spend_compare(a, b);
  if (a.json() != nullptr && b.json() != nullptr) return equal(*a.json(), *b.json());
  return a.is_undefined() && b.is_undefined();
}

bool is_in(Run& run, const Value& part, const Value& whole) {
  if (whole.is_undefined()) return false;
  if (const auto text = whole.string()) {
    if (!part.string()) fail_for(run, "in", part, whole);
    run.spend_search(*text, *part.string());
    return text->find(*part.string()) != text->npos;
  }
  const Json* json = whole.json();
  if (json == nullptr || !json->is_structured()) fail_for(run, "in", part, whole);
  run.spend(weigh(*json).work);
  if (json->is_object()) {
    const auto key = key_in_mapping(part);
    return key && json->contains(*key);
  }
  return std::any_of(json->begin(), json->end(),
                     [&](const Json& item) { return part.json() != nullptr && equal(*part.json(), item); });
}

bool compares(Run& run, std::string_view word, const Value& a, const Value& b) {
  if (word == "==") return is_equal(run, a, b);
  if (word == "!=") return !is_equal(run, a, b);
  if (word == "in") return is_in(run, a, b);
  if (word == "not in") return !is_in(run, a, b);
  if (word == "<") return is_less(run, a, b);
  if (word == ">") return is_less(run, b, a);
  return word == "<=" ? !is_less(run, b, a) : !is_less(run, a, b);
}

Value arithmetic(Run& run, std::string_view symbol, const Value& a, const Value& b) {
  if (a.json() == nullptr || b.json() == nullptr) fail_for(run, symbol, a, b);
  const Json& x = *a.json();
  const Json& y = *b.json();
  if (symbol == "%" && x.is_string()) return format_by_percent(run, a, b);
  if (number_of(x) && number_of(y)) return number_arithmetic(run, symbol, x, y);
  if (symbol == "+" && x.is_string() && y.is_string()) {
    run.spend(std::ssize(x.get_ref<const std::string&>()) / 16 +
              std::ssize(y.get_ref<const std::string&>()) / 16);
    return Json(x.get_ref<const std::string&>() + y.get_ref<const std::string&>());
  }
  if (symbol == "+" && x.is_array() && y.is_array()) {
    Json sum = json_of(run, a);
    run.spend_copy(y);
    sum.insert(sum.end(), y.begin(), y.end());
    return sum;
  }
  const auto repeats = [](const Json& what, const Json& count) {
    return (what.is_string() || what.is_array()) && integer_of(count);
  };
  if (symbol == "*" && repeats(x, y)) return repeated(run, x, *integer_of(y));
  if (symbol == "*" && repeats(y, x)) return repeated(run, y, *integer_of(x));
  fail_for(run, symbol, a, b);
}

Value slice_of(Run& run, const Value& value, std::span<const Value> bounds) {
  const Json* json = value.json();
  if (json == nullptr || !(json->is_array() || json->is_string()))
    run.fail(fmt::format("cannot slice {}", kind_of(value)));
  const int64_t length = length_of(run, value);
  const SlicePositions positions = slice_positions(run, bounds, length);
  if (json->is_string() && positions.step == 1) {
    run.spend(std::ssize(*value.string()) / 16);
    const size_t first = byte_of_character(*value.string(), positions.first);
    const size_t last = byte_of_character(*value.string(), std::max(positions.first, positions.last));
    return Json(value.string()->substr(first, last - first));
  }
  const std::vector<Value> items = items_of(run, value);
  std::vector<Value> taken;
  std::string text;
  for (int64_t at = positions.first; positions.step > 0 ? at < positions.last : at > positions.last;) {
    run.spend(4);
    taken.push_back(items[static_cast<size_t>(at)]);
    if (json->is_string()) text += *taken.back().string();
    if (__builtin_add_overflow(at, positions.step, &at)) break;
  }
  return json->is_string() ? Value(Json(text)) : list_value(run, taken);
}

std::string_view string_argument(Run& run, const Value& argument, std::string_view default_value) {
  if (argument.is_undefined() || (argument.json() != nullptr && argument.json()->is_null()))
    return default_value;
  const auto text = argument.string();
  if (!text) run.fail(fmt::format("expected a string as argument, got {}", kind_of(argument)));
  return *text;
}

int64_t integer_argument(Run& run, const Value& argument, int64_t default_value) {
  if (argument.is_undefined()) return default_value;
  const auto value = integer_of(argument);
  if (!value) run.fail(fmt::format("expected an integer, got {}", kind_of(argument)));
  return *value;
}

std::string_view string_subject(Run& run, const Value& subject, std::string_view builtin) {
  const auto text = subject.string();
  if (!text) run.fail(fmt::format("{} works on a string, got {}", builtin, kind_of(subject)));
  run.spend(std::ssize(*text) / 16);
  return *text;
}

Value list_value(Run& run, const std::vector<Value>& items) {
  Json list = Json::array();
  run.spend(1);
  for (const Value& item : items) list.push_back(json_of(run, item));
  const auto is_tuple = [](const Value& item) { return item.print_type() == PrintType::tuple; };
  const bool are_tuples = !items.empty() && std::ranges::all_of(items, is_tuple);
  return Value(std::move(list)).with_print_type(are_tuples ? PrintType::tuples : PrintType::plain);
}

}  // namespace hearth::text::jinja
