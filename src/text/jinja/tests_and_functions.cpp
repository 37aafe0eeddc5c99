#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "text/jinja/library.h"

namespace hearth::text::jinja {
namespace {

/// Implements a test that is a predicate of the JSON value; false for values without JSON.
template <bool (*holds)(const Json&)>
Value json_test(Run&, const Value& subject, Arguments) {
  return Value::boolean(subject.json() != nullptr && holds(*subject.json()));
}

Value defined(Run&, const Value& subject, Arguments) { return Value::boolean(!subject.is_undefined()); }
Value undefined(Run&, const Value& subject, Arguments) { return Value::boolean(subject.is_undefined()); }
Value callable(Run&, const Value& subject, Arguments) { return Value::boolean(subject.is_callable()); }

/// Implements the test iterable. Also true for undefined values, whose iteration is empty.
Value iterable(Run&, const Value& subject, Arguments) {
  const Json* json = subject.json();
  return Value::boolean(subject.is_undefined() ||
                        (json != nullptr && (json->is_structured() || json->is_string())));
}

/// Returns true if `subject % divisor == wanted`, by Python's rules, also for floats and booleans.
Value has_remainder(Run& run, const Value& subject, const Value& divisor, int64_t wanted) {
  return Value::boolean(is_equal(run, arithmetic(run, "%", subject, divisor), Json(wanted)));
}
Value odd(Run& run, const Value& subject, Arguments) { return has_remainder(run, subject, Json(2), 1); }
Value even(Run& run, const Value& subject, Arguments) { return has_remainder(run, subject, Json(2), 0); }
Value divisible(Run& run, const Value& subject, Arguments arguments) {
  return has_remainder(run, subject, arguments[0], 0);
}

Value contained(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(is_in(run, subject, arguments[0]));
}
Value equal_to(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(is_equal(run, subject, arguments[0]));
}
Value unequal(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(!is_equal(run, subject, arguments[0]));
}
Value less(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(is_less(run, subject, arguments[0]));
}
Value greater(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(is_less(run, arguments[0], subject));
}
Value at_most(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(!is_less(run, arguments[0], subject));
}
Value at_least(Run& run, const Value& subject, Arguments arguments) {
  return Value::boolean(!is_less(run, subject, arguments[0]));
}

/// Implements the test sameas: Python's `is`, but only for values where it is well defined (true, false and
/// none).
Value same_as(Run& run, const Value& subject, Arguments arguments) {
  const Json* other = arguments[0].json();
  if (other == nullptr || !(other->is_boolean() || other->is_null()))
    run.fail("sameas is supported for true, false and none");
  return Value::boolean(subject.json() != nullptr && *subject.json() == *other);
}

const Builtin kTests[] = {
    {"defined", defined},
    {"undefined", undefined},
    {"callable", callable},
    {"iterable", iterable},
    {"none", json_test<[](const Json& json) { return json.is_null(); }>},
    {"string", json_test<[](const Json& json) { return json.is_string(); }>},
    {"mapping", json_test<[](const Json& json) { return json.is_object(); }>},
    {"sequence", json_test<[](const Json& json) { return json.is_structured() || json.is_string(); }>},
    {"number", json_test<[](const Json& json) { return json.is_number() || json.is_boolean(); }>},
    {"integer", json_test<[](const Json& json) { return json.is_number_integer(); }>},
    {"float", json_test<[](const Json& json) { return json.is_number_float(); }>},
    {"boolean", json_test<[](const Json& json) { return json.is_boolean(); }>},
    {"true", json_test<[](const Json& json) { return json.is_boolean() && json.get<bool>(); }>},
    {"false", json_test<[](const Json& json) { return json.is_boolean() && !json.get<bool>(); }>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible, {"num"}, 1},
    {"in", contained, {"seq"}, 1},
    {"sameas", same_as, {"other"}, 1},
    {"eq", equal_to, {"other"}, 1},
    {"equalto", equal_to, {"other"}, 1},
    {"==", equal_to, {"other"}, 1},
    {"ne", unequal, {"other"}, 1},
    {"!=", unequal, {"other"}, 1},
    {"lt", less, {"other"}, 1},
    {"lessthan", less, {"other"}, 1},
    {"<", less, {"other"}, 1},
    {"gt", greater, {"other"}, 1},
    {"greaterthan", greater, {"other"}, 1},
    {">", greater, {"other"}, 1},
    {"le", at_most, {"other"}, 1},
    {"<=", at_most, {"other"}, 1},
    {"ge", at_least, {"other"}, 1},
    {">=", at_least, {"other"}, 1},
};

Value range(Run& run, const Value&, Arguments arguments) {
  const bool from_zero = arguments[1].is_undefined();
  const int64_t first = from_zero ? 0 : integer_argument(run, arguments[0]);
  const int64_t last = integer_argument(run, arguments[from_zero ? 0 : 1]);
  const int64_t step = integer_argument(run, arguments[2], 1);
  if (step == 0) run.fail("range expected a step that is not zero");
  Json list = Json::array();
  for (int64_t at = first; step > 0 ? at < last : at > last;) {
    run.spend(1);
    list.push_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return list;
}

Value raise_exception(Run& run, const Value&, Arguments arguments) {
  run.fail(fmt::format("the template refuses: {}", text_of(run, arguments[0])));
}

Value strftime_now(Run& run, const Value&, Arguments arguments) {
  if (!run.options().now) run.fail("strftime_now needs a date; set one for the rendering");
  const std::string format(string_argument(run, arguments[0]));
  const std::time_t now = *run.options().now;
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 256> text{};
  const size_t size = std::strftime(text.data(), text.size(), format.c_str(), &parts);
  if (size == 0 && !format.empty()) run.fail("strftime_now expected a shorter format");
  return Json(std::string(text.data(), size));
}

const Builtin kFunctions[] = {
    {"range", range, {"start", "stop", "step"}, 1},
    {"raise_exception", raise_exception, {"message"}, 1},
    {"strftime_now", strftime_now, {"format"}, 1},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_builtin(kTests, name); }

const Builtin* find_function(std::string_view name) { return find_builtin(kFunctions, name); }

}  // namespace hearth::text::jinja
