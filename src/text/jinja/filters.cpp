#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/jinja/library.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

bool given(const Value& argument) { return !argument.is_undefined(); }

/// Returns the attribute of an item that a dotted path such as a.b.0 describes.
Value path_of(Run& run, Value item, std::string_view path) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    const std::string_view name = path.substr(0, end);
    int64_t index = 0;
    const auto [stop, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = error == std::errc() && stop == name.data() + name.size();
    item = item_of(run, item, number ? Value(Json(index)) : Value(Json(name)));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return item;
}

Value attribute_or_item(Run& run, const Value& item, const Value& attribute) {
  return given(attribute) ? path_of(run, item, string_argument(run, attribute)) : item;
}

Value trim(Run& run, const Value& subject, Arguments arguments) {
  const std::string text = text_of(run, subject);
  run.spend_search(text, string_argument(run, arguments[0]));
  return Json(strip(text, string_argument(run, arguments[0]), Side::both));
}

Value string(Run& run, const Value& subject, Arguments) { return Json(text_of(run, subject)); }
Value upper_filter(Run& run, const Value& subject, Arguments) {
  return Json(upper(run, text_of(run, subject)));
}
Value lower_filter(Run& run, const Value& subject, Arguments) {
  return Json(lower(run, text_of(run, subject)));
}
/// Implements the filter title: letters after white space, hyphens and opening brackets become upper case,
/// others lower case.
Value title_filter(Run& run, const Value& subject, Arguments) {
  const std::string text = lower(run, text_of(run, subject));
  std::string result, word;
  const auto flush = [&] {
    result += capitalize(run, word);
    word.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const Character next = first_character(std::string_view(text).substr(i));
    word += text.substr(i, next.bytes);
    if (is_python_space(next.value) ||
        std::u32string_view(U"-({[<").find(next.value) != std::u32string_view::npos)
      flush();
    i += next.bytes;
  }
  flush();
  return Json(result);
}
Value capitalize_filter(Run& run, const Value& subject, Arguments) {
  return Json(capitalize(run, text_of(run, subject)));
}
Value same(Run&, const Value& subject, Arguments) { return subject; }
Value length(Run& run, const Value& subject, Arguments) { return Json(length_of(run, subject)); }

Value default_value(Run&, const Value& subject, Arguments arguments) {
  const bool missing = subject.is_undefined() || (is_true(arguments[1]) && !is_true(subject));
  if (!missing) return subject;
  return given(arguments[0]) ? arguments[0] : Value(Json(""));
}

Value replace_filter(Run& run, const Value& subject, Arguments arguments) {
  return Json(replace(run, text_of(run, subject), string_argument(run, arguments[0]),
                      string_argument(run, arguments[1]), integer_argument(run, arguments[2], -1)));
}

Value join(Run& run, const Value& subject, Arguments arguments) {
  const std::string separator = text_of(run, arguments[0]);
  std::string text;
  bool first = true;
  for (const Value& item : items_of(run, subject)) {
    run.spend(std::ssize(separator) / 16);
    if (!first) text += separator;
    first = false;
    text += text_of(run, attribute_or_item(run, item, arguments[1]));
  }
  return Json(text);
}

/// True for lists and strings, whose items can be accessed by index.
bool is_sequence(const Value& value) {
  return value.json() != nullptr && (value.json()->is_array() || value.json()->is_string());
}

Value first(Run& run, const Value& subject, Arguments) {
  if (is_sequence(subject)) return item_of(run, subject, Json(0));
  const std::vector<Value> items = items_of(run, subject);
  return items.empty() ? Value::undefined("the first item") : items.front();
}

Value last(Run& run, const Value& subject, Arguments) {
  if (is_sequence(subject)) return item_of(run, subject, Json(-1));
  const std::vector<Value> items = items_of(run, subject);
  return items.empty() ? Value::undefined("the last item") : items.back();
}

Value list(Run& run, const Value& subject, Arguments) { return list_value(run, items_of(run, subject)); }

Value reverse(Run& run, const Value& subject, Arguments) {
  std::vector<Value> items = items_of(run, subject);
  std::reverse(items.begin(), items.end());
  if (!subject.string()) return list_value(run, items);
  std::string text;
  for (const Value& item : items) text += *item.string();
  return Json(text);
}

Value to_json(Run& run, const Value& subject, Arguments arguments) {
  if (subject.json() == nullptr) run.fail(fmt::format("tojson cannot write {}", kind_of(subject)));
  const Json& json = *subject.json();
  run.spend_copy(json);
  DumpOptions options{.ensure_ascii = is_true(arguments[0]), .sort_keys = is_true(arguments[3])};
  if (is_true(arguments[1])) {
    options.indent = static_cast<int>(std::clamp<int64_t>(integer_argument(run, arguments[1]), 0, 16));
    options.item_separator = ",";
  }
  std::vector<Value> separators;
  if (is_true(arguments[2])) {
    separators = items_of(run, arguments[2]);
    if (separators.size() != 2) run.fail("tojson expected two separators");
    options.item_separator = string_argument(run, separators[0]);
    options.key_separator = string_argument(run, separators[1]);
  }
  // Charges work for the separators and the indentation, which the size of the JSON does not include.
  const auto widest =
      static_cast<int64_t>(std::max(options.item_separator.size(), options.key_separator.size()));
  const int64_t indent = std::max(options.indent, 0) * (int64_t{weigh(json).depth} + 1);
  run.spend((num_parts(json) / 4 + 1) * ((widest + indent) / 4 + 1));
  return Json(dump(json, options));
}

/// Converts a number or numeric string to a float, as Python's float(); nothing if it is not finite or not a
/// number.
std::optional<double> parsed(const Value& subject) {
  if (const auto number = number_of(subject)) return number;
  if (!subject.string()) return std::nullopt;
  const std::string_view text = strip(*subject.string(), {}, Side::both);
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Value integer(Run& run, const Value& subject, Arguments arguments) {
  if (const auto whole = integer_of(subject)) return Json(*whole);
  const auto number = parsed(subject);
  if (number && std::abs(*number) >= 9e18) run.fail(fmt::format("{} is not a number of 64 bits", *number));
  if (number) return Json(static_cast<int64_t>(*number));
  return given(arguments[0]) ? arguments[0] : Value(Json(0));
}

Value real(Run&, const Value& subject, Arguments arguments) {
  if (const auto number = parsed(subject)) return Json(*number);
  return given(arguments[0]) ? arguments[0] : Value(Json(0.0));
}

Value absolute(Run& run, const Value& subject, Arguments) {
  const auto number = number_of(subject);
  if (!number) run.fail(fmt::format("abs expected a number, got {}", kind_of(subject)));
  const auto integer = integer_of(subject);
  return integer && *integer != INT64_MIN ? Json(std::abs(*integer)) : Json(std::abs(*number));
}

Value items(Run& run, const Value& subject, Arguments) {
  if (subject.is_undefined()) return Json(Json::array());
  return find_method("items")->apply(run, subject, {});
}

/// Returns the value by which sort, unique, min and max compare an item: its attribute or itself, with
/// strings in lower case unless case_sensitive.
Value key_of(Run& run, const Value& item, const Value& attribute, const Value& case_sensitive) {
  Value key = attribute_or_item(run, item, attribute);
  if (key.string() && !is_true(case_sensitive)) return Json(lower(run, *key.string()));
  return key;
}

/// Returns the items of a value; empty if the value is false in Python's sense (such as none).
std::vector<Value> items_if_true(Run& run, const Value& value) {
  return is_true(value) ? items_of(run, value) : std::vector<Value>();
}

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> keyed(Run& run, const Value& subject, const Value& attribute,
                         const Value& case_sensitive) {
  std::vector<Keyed> all;
  for (const Value& item : items_of(run, subject))
    all.push_back({key_of(run, item, attribute, case_sensitive), item});
  return all;
}

Value list_of_items(Run& run, const std::vector<Keyed>& all) {
  std::vector<Value> items;
  for (const Keyed& entry : all) items.push_back(entry.item);
  return list_value(run, items);
}

/// Sorts the items of `subject` by one attribute, stably.
Value sorted(Run& run, const Value& subject, Arguments arguments, const Value& attribute) {
  std::vector<Keyed> all = keyed(run, subject, attribute, arguments[1]);
  const bool reversed = is_true(arguments[0]);
  run.spend(std::ssize(all) * 16);
  std::stable_sort(all.begin(), all.end(), [&](const Keyed& a, const Keyed& b) {
    if (is_equal(run, a.key, b.key)) return false;
    return reversed ? is_less(run, b.key, a.key) : is_less(run, a.key, b.key);
  });
  return list_of_items(run, all);
}

/// Implements the filter sort. For attribute='a,b', sorts stably by b and then by a, so that items with equal
/// a are ordered by b.
Value sort(Run& run, const Value& subject, Arguments arguments) {
  if (!arguments[2].string()) return sorted(run, subject, arguments, arguments[2]);
  std::string_view attributes = *arguments[2].string();
  Value items = subject;
  for (size_t comma = attributes.rfind(','); comma != attributes.npos; comma = attributes.rfind(',')) {
    items = sorted(run, items, arguments, Json(attributes.substr(comma + 1)));
    attributes = attributes.substr(0, comma);
  }
  return sorted(run, items, arguments, Json(attributes));
}

Value dictsort(Run& run, const Value& subject, Arguments arguments) {
  const std::array<Value, kMaxParameters> by_key = {arguments[1], arguments[0], Value(Json("0"))};
  return sort(run, items(run, subject, {}), by_key);
}

Value unique(Run& run, const Value& subject, Arguments arguments) {
  std::vector<Keyed> kept;
  for (Keyed& entry : keyed(run, subject, arguments[1], arguments[0])) {
    run.spend(std::ssize(kept));
    if (entry.key.json() != nullptr && entry.key.json()->is_structured())
      run.fail("unique works on strings and numbers");
    const bool seen = std::any_of(kept.begin(), kept.end(),
                                  [&](const Keyed& k) { return is_equal(run, k.key, entry.key); });
    if (!seen) kept.push_back(std::move(entry));
  }
  return list_of_items(run, kept);
}

template <bool largest>
Value extreme(Run& run, const Value& subject, Arguments arguments) {
  std::optional<Keyed> best;
  for (Keyed& entry : keyed(run, subject, arguments[1], arguments[0])) {
    const bool better =
        !best || (largest ? is_less(run, best->key, entry.key) : is_less(run, entry.key, best->key));
    if (better) best = std::move(entry);
  }
  return best ? best->item : Value::undefined("the extreme item of nothing");
}

Value sum(Run& run, const Value& subject, Arguments arguments) {
  Value total = given(arguments[1]) ? arguments[1] : Value(Json(0));
  for (const Value& item : items_of(run, subject)) {
    total = arithmetic(run, "+", total, attribute_or_item(run, item, arguments[0]));
  }
  return total;
}

/// Implements Python's round(): exact halves of the binary value round to the even digit.
Value rounded(Run& run, const Value& subject, int64_t precision) {
  if (const auto whole = integer_of(subject); whole && precision >= 0) return Json(*whole);
  if (precision < 0 || precision > 100)
    run.fail(fmt::format("round to {} digits is not supported", precision));
  const std::string text = fmt::format("{:.{}f}", *number_of(subject), static_cast<int>(precision));
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return Json(value);
}

Value round(Run& run, const Value& subject, Arguments arguments) {
  const auto number = number_of(subject);
  const std::string_view method = string_argument(run, arguments[1], "common");
  if (!number) run.fail(fmt::format("round expected a number, got {}", kind_of(subject)));
  if (method == "common") return rounded(run, subject, integer_argument(run, arguments[0]));
  if (method != "ceil" && method != "floor") run.fail("round expected the method common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(integer_argument(run, arguments[0])));
  return Json((method == "ceil" ? std::ceil(*number * scale) : std::floor(*number * scale)) / scale);
}

Value indent(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "indent");
  const auto width = static_cast<size_t>(std::clamp<int64_t>(integer_argument(run, arguments[0], 4), 0, 64));
  const std::string blanks(width, ' ');
  const int64_t num_lines = std::count(text.begin(), text.end(), '\n') + 1;
  run.spend(std::ssize(text) / 16 + num_lines * static_cast<int64_t>(width) / 16);
  std::string result = is_true(arguments[1]) ? blanks : "";
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    const bool blank_line = i + 1 == text.size() || text[i + 1] == '\n';
    if (text[i] == '\n' && (is_true(arguments[2]) || !blank_line)) result += blanks;
  }
  return Json(result);
}

Value map(Run& run, const Value& subject, Arguments arguments) {
  std::vector<Value> results;
  const std::string_view name = string_argument(run, arguments[0]);
  const Builtin* filter = given(arguments[3]) ? nullptr : find_filter(name);
  if (filter == nullptr && !given(arguments[3]))
    run.fail(fmt::format("the filter '{}' is not supported for map", name));
  std::array<Value, kMaxParameters> passed = {arguments[1], arguments[2]};
  for (const Value& item : items_if_true(run, subject)) {
    run.spend(1);
    Value result =
        filter != nullptr ? filter->apply(run, item, passed) : attribute_or_item(run, item, arguments[3]);
    if (result.is_undefined() && given(arguments[4])) result = arguments[4];
    results.push_back(std::move(result));
  }
  return list_value(run, results);
}

/// Implements select, reject, selectattr and rejectattr: returns the items for which a test gives `wanted`.
/// The test is applied to the item, or (of_attribute) to its attribute arguments[0]. The next argument is the
/// name of the test; without it, tests whether the value is true.
template <bool of_attribute, bool wanted>
Value chosen(Run& run, const Value& subject, Arguments arguments) {
  constexpr size_t at = of_attribute ? 1 : 0;
  const Builtin* test = given(arguments[at]) ? find_test(string_argument(run, arguments[at])) : nullptr;
  if (test == nullptr && given(arguments[at]))
    run.fail(fmt::format("the test '{}' is not supported", string_argument(run, arguments[at])));
  const std::array<Value, kMaxParameters> passed = {arguments[at + 1]};
  std::vector<Value> kept;
  for (const Value& item : items_if_true(run, subject)) {
    run.spend(1);
    const Value what = of_attribute ? attribute_or_item(run, item, arguments[0]) : item;
    if (is_true(test != nullptr ? test->apply(run, what, passed) : what) == wanted) kept.push_back(item);
  }
  return list_value(run, kept);
}

/// Implements the filter batch(size, fill_with): splits into lists of `size` items, and pads the last one
/// with `fill_with` if that is set.
Value batch(Run& run, const Value& subject, Arguments arguments) {
  const int64_t size = integer_argument(run, arguments[0]);
  if (size < 1) run.fail("batch expected at least one item per list");
  std::vector<Value> rows, row;
  const auto flush = [&] {
    rows.push_back(list_value(run, row));
    row.clear();
  };
  for (const Value& item : items_of(run, subject)) {
    if (std::ssize(row) == size) flush();
    row.push_back(item);
  }
  if (row.empty()) return list_value(run, rows);
  const bool fills = given(arguments[1]) && !arguments[1].json()->is_null();
  for (; fills && std::ssize(row) < size; run.spend(8)) row.push_back(arguments[1]);
  flush();
  return list_value(run, rows);
}

const Builtin kFilters[] = {
    {"trim", trim, {"chars"}},
    {"upper", upper_filter},
    {"lower", lower_filter},
    {"capitalize", capitalize_filter},
    {"title", title_filter},
    {"batch", batch, {"linecount", "fill_with"}, 1},
    {"string", string},
    {"safe", same},
    {"length", length},
    {"count", length},
    {"default", default_value, {"default_value", "boolean"}},
    {"d", default_value, {"default_value", "boolean"}},
    {"replace", replace_filter, {"old", "new", "count"}, 2},
    {"join", join, {"d", "attribute"}},
    {"first", first},
    {"last", last},
    {"list", list},
    {"reverse", reverse},
    {"tojson", to_json, {"ensure_ascii", "indent", "separators", "sort_keys"}},
    {"int", integer, {"default"}},
    {"float", real, {"default"}},
    {"abs", absolute},
    {"items", items},
    {"dictsort", dictsort, {"case_sensitive", "reverse"}},
    {"sort", sort, {"reverse", "case_sensitive", "attribute"}},
    {"unique", unique, {"case_sensitive", "attribute"}},
    {"min", extreme<false>, {"case_sensitive", "attribute"}},
    {"max", extreme<true>, {"case_sensitive", "attribute"}},
    {"sum", sum, {"attribute", "start"}},
    {"round", round, {"precision", "method"}},
    {"indent", indent, {"width", "first", "blank"}},
    {"map", map, {"filter", "argument", "argument2", "attribute", "default"}},
    {"select", chosen<false, true>, {"test", "argument"}},
    {"reject", chosen<false, false>, {"test", "argument"}},
    {"selectattr", chosen<true, true>, {"attribute", "test", "argument"}, 1},
    {"rejectattr", chosen<true, false>, {"attribute", "test", "argument"}, 1},
};

}  // namespace

const Builtin* find_filter(std::string_view name) { return find_builtin(kFilters, name); }

}  // namespace hearth::text::jinja
