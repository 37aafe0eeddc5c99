#include <utf8proc.h>

#include <algorithm>

#include "base/error.h"
#include "text/jinja/library.h"
#include "text/jinja/strings.h"
#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 128; });
}
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// True if a character is a cased letter (Unicode category Lu, Ll or Lt).
bool is_cased(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

/// True for letters whose upper or lower case depends on their neighbors or has more than one letter. U+00DF
/// (sharp s) is an exception, because append_changed() handles it.
bool has_special_case(char32_t c) {
  return c == 0x130 || c == 0x149 || c == 0x1F0 || c == 0x390 || c == 0x3A3 || c == 0x3B0 || c == 0x587 ||
         (c >= 0x1C4 && c <= 0x1CC) || (c >= 0x1F1 && c <= 0x1F3) || (c >= 0x1E96 && c <= 0x1E9E) ||
         (c >= 0x1F50 && c <= 0x1FFF) || (c >= 0xFB00 && c <= 0xFB17);
}

void append_changed(Run& run, std::string& text, char32_t c, bool to_upper) {
  if (c < 128) {
    const bool changes = to_upper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
    text += static_cast<char>(changes ? c ^ 32 : c);
  } else if (c == 0xDF && to_upper) {
    text += "SS";
  } else {
    if (has_special_case(c)) run.fail("converting the case of letters such as U+0130 is not supported");
    const auto value = static_cast<utf8proc_int32_t>(c);
    append_utf8(text, static_cast<char32_t>(to_upper ? utf8proc_toupper(value) : utf8proc_tolower(value)));
  }
}

/// Converts each character of a text to upper case if is_upper(follows_letter, is_first) is true, otherwise
/// to lower case.
template <typename IsUpper>
std::string with_letters(Run& run, std::string_view text, IsUpper is_upper) {
  run.spend(std::ssize(text) / 16);
  std::string result;
  bool after_letter = false;
  for (size_t i = 0; i < text.size();) {
    const Character next = first_character(text.substr(i));
    append_changed(run, result, next.value, is_upper(after_letter, i == 0));
    after_letter = next.value < 128 ? is_letter(static_cast<char>(next.value)) : is_cased(next.value);
    i += next.bytes;
  }
  return result;
}

Value strip_method(Run& run, const Value& subject, Arguments arguments, Side side) {
  const std::string_view text = string_subject(run, subject, "strip");
  run.spend_search(text, string_argument(run, arguments[0]));
  return Json(strip(text, string_argument(run, arguments[0]), side));
}

/// Work units charged for each part into which a text is split.
constexpr int64_t kPartWork = 4;

std::vector<std::string_view> split_at(Run& run, std::string_view text, std::string_view separator,
                                       int64_t max_splits, Side from = Side::left) {
  std::vector<std::string_view> parts;
  run.spend_search(text, separator);
  const auto next = [&] { return from == Side::left ? text.find(separator) : text.rfind(separator); };
  for (size_t at = 0; max_splits != 0 && (at = next()) != text.npos; --max_splits) {
    run.spend(kPartWork);
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    parts.push_back(from == Side::left ? before : after);
    text = from == Side::left ? after : before;
  }
  parts.push_back(text);
  if (from == Side::right) std::reverse(parts.begin(), parts.end());
  return parts;
}

size_t first_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size() && !is_python_space(first_character(text.substr(at)).value))
    at += first_character(text.substr(at)).bytes;
  return at;
}

size_t last_space_end(std::string_view text) {
  while (!text.empty() && !is_python_space(last_character(text).value))
    text.remove_suffix(last_character(text).bytes);
  return text.size();
}

std::vector<std::string_view> split_at_space(Run& run, std::string_view text, int64_t max_splits,
                                             Side from = Side::left) {
  std::vector<std::string_view> parts;
  for (text = strip(text, {}, from); !text.empty() && max_splits != 0;
       text = strip(text, {}, from), --max_splits) {
    run.spend(kPartWork);
    const size_t at = from == Side::left ? first_space(text) : last_space_end(text);
    const std::string_view before = text.substr(0, at), after = text.substr(at);
    parts.push_back(from == Side::left ? before : after);
    text = from == Side::left ? after : before;
  }
  if (!text.empty()) parts.push_back(text);
  if (from == Side::right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value list_of(Run& run, const std::vector<std::string_view>& parts) {
  Json list = Json::array();
  for (const std::string_view part : parts) {
    run.spend(kPartWork + std::ssize(part) / 16);
    list.push_back(part);
  }
  return list;
}

Value split_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "split");
  const std::string_view separator = string_argument(run, arguments[0]);
  const int64_t max_splits = integer_argument(run, arguments[1], -1);
  if (arguments[0].string() && separator.empty()) run.fail("expected a separator that is not empty");
  return list_of(run, separator.empty() ? split_at_space(run, text, max_splits)
                                        : split_at(run, text, separator, max_splits));
}

Value rsplit_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "rsplit");
  const std::string_view separator = string_argument(run, arguments[0]);
  const int64_t max_splits = integer_argument(run, arguments[1], -1);
  if (arguments[0].string() && separator.empty()) run.fail("expected a separator that is not empty");
  return list_of(run, separator.empty() ? split_at_space(run, text, max_splits, Side::right)
                                        : split_at(run, text, separator, max_splits, Side::right));
}

Value splitlines_method(Run& run, const Value& subject, Arguments arguments) {
  std::string_view text = string_subject(run, subject, "splitlines");
  const bool keeps_ends = is_true(arguments[0]);
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    run.spend(kPartWork);
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const size_t width = end == text.size() ? 0 : text.substr(end).starts_with("\r\n") ? 2 : 1;
    lines.push_back(text.substr(0, end + (keeps_ends ? width : 0)));
    text.remove_prefix(end + width);
  }
  return list_of(run, lines);
}

template <typename Holds>
Value any_affix(Run& run, const Value& argument, Holds holds) {
  if (argument.json() == nullptr || !argument.json()->is_array())
    return Value::boolean(holds(string_argument(run, argument)));
  const std::vector<Value> affixes = items_of(run, argument);
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(),
                                    [&](const Value& affix) { return holds(string_argument(run, affix)); }));
}

Value startswith_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "startswith");
  return any_affix(run, arguments[0], [&](std::string_view affix) { return text.starts_with(affix); });
}

Value endswith_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "endswith");
  return any_affix(run, arguments[0], [&](std::string_view affix) { return text.ends_with(affix); });
}

Value removeprefix_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "removeprefix");
  const std::string_view affix = string_argument(run, arguments[0]);
  return Json(text.starts_with(affix) ? text.substr(affix.size()) : text);
}

Value removesuffix_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "removesuffix");
  const std::string_view affix = string_argument(run, arguments[0]);
  return Json(text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text);
}

Value position_in(std::string_view text, size_t at) {
  return Json(at == text.npos ? int64_t{-1} : num_characters(text.substr(0, at)));
}

Value find_method_of_strings(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "find");
  const std::string_view part = string_argument(run, arguments[0]);
  run.spend_search(text, part);
  return position_in(text, text.find(part));
}

Value rfind_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view text = string_subject(run, subject, "rfind");
  const std::string_view part = string_argument(run, arguments[0]);
  run.spend_search(text, part);
  return position_in(text, text.rfind(part));
}

/// Implements index() of lists and strings: returns the position of an item or part; fails if it is not
/// found.
Value index_method(Run& run, const Value& subject, Arguments arguments) {
  if (const Json* json = subject.json(); json != nullptr && json->is_array()) {
    const std::vector<Value> items = items_of(run, subject);
    for (size_t i = 0; i < items.size(); ++i) {
      if (is_equal(run, items[i], arguments[0])) return Json(i);
    }
    run.fail("index did not find the value in the list");
  }
  Value found = find_method_of_strings(run, subject, arguments);
  if (integer_of(found) == -1) run.fail("index did not find the part in the string");
  return found;
}

Value partition_method(Run& run, const Value& subject, Arguments arguments, bool from_right) {
  const std::string_view text = string_subject(run, subject, "partition");
  const std::string_view separator = string_argument(run, arguments[0]);
  if (separator.empty()) run.fail("expected a separator that is not empty");
  run.spend_search(text, separator);
  const size_t at = from_right ? text.rfind(separator) : text.find(separator);
  if (at == text.npos)
    return list_of(run, from_right ? std::vector<std::string_view>{"", "", text}
                                   : std::vector<std::string_view>{text, "", ""})
        .with_print_type(PrintType::tuple);
  return list_of(run, {text.substr(0, at), separator, text.substr(at + separator.size())})
      .with_print_type(PrintType::tuple);
}

/// Pads a string with `fill` to `width` characters, as str.ljust, rjust, center and zfill do. `side`: where
/// the padding goes. `name`: method name for messages.
Value filled(Run& run, const Value& subject, std::string_view name, int64_t width, std::string_view fill,
             Side side) {
  std::string_view text = string_subject(run, subject, name);
  if (num_characters(fill) != 1) run.fail(fmt::format("{} expected one character to fill with", name));
  const int64_t count = width - num_characters(text);
  if (count <= 0) return Json(text);
  run.spend(count);
  // If padding cannot be equal on both sides, Python puts the extra character to the left if the width is
  // odd.
  const int64_t num_left = side == Side::left    ? count
                           : side == Side::right ? 0
                                                 : count / 2 + (count & width & 1);
  std::string left, right;
  for (int64_t i = 0; i < count; ++i) (i < num_left ? left : right) += fill;
  if (name == "zfill" && !text.empty() && (text[0] == '-' || text[0] == '+')) {
    left.insert(left.begin(), text[0]);
    text.remove_prefix(1);
  }
  return Json(left + std::string(text) + right);
}

template <Side side>
Value filled_method(Run& run, const Value& subject, Arguments arguments) {
  return filled(run, subject, "center", integer_argument(run, arguments[0]),
                string_argument(run, arguments[1], " "), side);
}

/// True if the text has letters in [first, last] and none in [other_first, other_last]: cased letters, all of
/// one case.
bool has_case(std::string_view text, char first, char last, char other_first, char other_last) {
  bool any = false;
  for (const char c : text) {
    if (c >= other_first && c <= other_last) return false;
    any = any || (c >= first && c <= last);
  }
  return any;
}

Value case_method(Run& run, const Value& subject, bool upper_case) {
  const std::string_view text = string_subject(run, subject, "isupper");
  if (!is_ascii(text)) run.fail("the case of characters beyond ASCII is not supported here");
  return Value::boolean(upper_case ? has_case(text, 'A', 'Z', 'a', 'z') : has_case(text, 'a', 'z', 'A', 'Z'));
}

Value isspace_method(Run& run, const Value& subject, Arguments) {
  const std::string_view text = string_subject(run, subject, "isspace");
  return Value::boolean(!text.empty() && strip(text, {}, Side::both).empty());
}

Value count_method(Run& run, const Value& subject, Arguments arguments) {
  if (const Json* json = subject.json(); json != nullptr && json->is_array()) {
    const std::vector<Value> items = items_of(run, subject);
    return Json(std::count_if(items.begin(), items.end(),
                              [&](const Value& item) { return is_equal(run, item, arguments[0]); }));
  }
  const std::string_view text = string_subject(run, subject, "count");
  const std::string_view part = string_argument(run, arguments[0]);
  if (part.empty()) return Json(num_characters(text) + 1);
  return Json(std::ssize(split_at(run, text, part, -1)) - 1);
}

Value replace_method(Run& run, const Value& subject, Arguments arguments) {
  return Json(replace(run, string_subject(run, subject, "replace"), string_argument(run, arguments[0]),
                      string_argument(run, arguments[1]), integer_argument(run, arguments[2], -1)));
}

Value join_method(Run& run, const Value& subject, Arguments arguments) {
  const std::string_view separator = string_subject(run, subject, "join");
  std::string text;
  bool first = true;
  for (const Value& item : items_of(run, arguments[0])) {
    if (!item.string()) run.fail(fmt::format("join expected strings, got {}", kind_of(item)));
    run.spend(std::ssize(*item.string()) / 16 + std::ssize(separator) / 16);
    if (!first) text += separator;
    first = false;
    text += *item.string();
  }
  return Json(text);
}

template <typename Holds>
Value every_character(Run& run, const Value& subject, std::string_view name, Holds holds) {
  const std::string_view text = string_subject(run, subject, name);
  if (!is_ascii(text)) run.fail(fmt::format("{} of characters beyond ASCII is not supported", name));
  return Value::boolean(!text.empty() && std::all_of(text.begin(), text.end(), holds));
}

const Json& mapping_subject(Run& run, const Value& subject, std::string_view method) {
  if (subject.json() == nullptr || !subject.json()->is_object()) {
    run.fail(fmt::format(".{}() works on a mapping, got {}", method, kind_of(subject)));
  }
  return *subject.json();
}

Value items_method(Run& run, const Value& subject, Arguments) {
  const Json& mapping = mapping_subject(run, subject, "items");
  run.spend_copy(mapping);
  Json list = Json::array();
  for (const auto& [key, value] : mapping.items()) list.push_back(Json::array({key_of_mapping(key), value}));
  return Value(std::move(list)).with_print_type(PrintType::items);
}

Value keys_method(Run& run, const Value& subject, Arguments) {
  mapping_subject(run, subject, "keys");
  return list_value(run, items_of(run, subject));
}

Value values_method(Run& run, const Value& subject, Arguments) {
  Json list = Json::array();
  for (const Json& value : mapping_subject(run, subject, "values"))
    list.push_back(json_of(run, subject.part(value)));
  return list;
}

Value get_method(Run& run, const Value& subject, Arguments arguments) {
  mapping_subject(run, subject, "get");
  Value found = item_of(run, subject, arguments[0]);
  if (!found.is_undefined()) return found;
  return arguments[1].is_undefined() ? Value(Json(nullptr)) : arguments[1];
}

Value copy_method(Run& run, const Value& subject, Arguments) {
  if (subject.json() == nullptr || !subject.json()->is_structured())
    run.fail(fmt::format(".copy() works on a list or a mapping, got {}", kind_of(subject)));
  return subject;
}

#define TEXT_METHOD(body) \
  [](Run& run, const Value& subject, [[maybe_unused]] Arguments arguments) -> Value { return body; }

const Builtin kMethods[] = {
    {"strip", TEXT_METHOD(strip_method(run, subject, arguments, Side::both)), {"chars"}},
    {"lstrip", TEXT_METHOD(strip_method(run, subject, arguments, Side::left)), {"chars"}},
    {"rstrip", TEXT_METHOD(strip_method(run, subject, arguments, Side::right)), {"chars"}},
    {"split", split_method, {"sep", "maxsplit"}},
    {"rsplit", rsplit_method, {"sep", "maxsplit"}},
    {"splitlines", splitlines_method, {"keepends"}},
    {"startswith", startswith_method, {"prefix"}, 1},
    {"endswith", endswith_method, {"suffix"}, 1},
    {"removeprefix", removeprefix_method, {"prefix"}, 1},
    {"removesuffix", removesuffix_method, {"suffix"}, 1},
    {"find", find_method_of_strings, {"sub"}, 1},
    {"rfind", rfind_method, {"sub"}, 1},
    {"count", count_method, {"sub"}, 1},
    {"replace", replace_method, {"old", "new", "count"}, 2},
    {"join", join_method, {"iterable"}, 1},
    {"upper", TEXT_METHOD(Json(upper(run, string_subject(run, subject, "upper"))))},
    {"lower", TEXT_METHOD(Json(lower(run, string_subject(run, subject, "lower"))))},
    {"title", TEXT_METHOD(Json(title(run, string_subject(run, subject, "title"))))},
    {"capitalize", TEXT_METHOD(Json(capitalize(run, string_subject(run, subject, "capitalize"))))},
    {"isdigit",
     TEXT_METHOD(every_character(run, subject, "isdigit", [](char c) { return c >= '0' && c <= '9'; }))},
    {"isdecimal",
     TEXT_METHOD(every_character(run, subject, "isdecimal", [](char c) { return c >= '0' && c <= '9'; }))},
    {"isnumeric",
     TEXT_METHOD(every_character(run, subject, "isnumeric", [](char c) { return c >= '0' && c <= '9'; }))},
    {"isalnum", TEXT_METHOD(every_character(run, subject, "isalnum",
                                            [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); }))},
    {"isupper", TEXT_METHOD(case_method(run, subject, true))},
    {"islower", TEXT_METHOD(case_method(run, subject, false))},
    {"isspace", isspace_method},
    {"index", index_method, {"sub"}, 1},
    {"partition", TEXT_METHOD(partition_method(run, subject, arguments, false)), {"sep"}, 1},
    {"rpartition", TEXT_METHOD(partition_method(run, subject, arguments, true)), {"sep"}, 1},
    {"center", filled_method<Side::both>, {"width", "fillchar"}, 1},
    {"ljust", filled_method<Side::right>, {"width", "fillchar"}, 1},
    {"rjust", filled_method<Side::left>, {"width", "fillchar"}, 1},
    {"zfill",
     TEXT_METHOD(filled(run, subject, "zfill", integer_argument(run, arguments[0]), "0", Side::left)),
     {"width"},
     1},
    {"copy", copy_method},
    {"isalpha", TEXT_METHOD(every_character(run, subject, "isalpha", is_letter))},
    {"items", items_method},
    {"keys", keys_method},
    {"values", values_method},
    {"get", get_method, {"key", "default"}, 1},
};
#undef TEXT_METHOD

}  // namespace

std::string upper(Run& run, std::string_view text) {
  return with_letters(run, text, [](bool, bool) { return true; });
}
std::string lower(Run& run, std::string_view text) {
  return with_letters(run, text, [](bool, bool) { return false; });
}
std::string title(Run& run, std::string_view text) {
  return with_letters(run, text, [](bool inside, bool) { return !inside; });
}
std::string capitalize(Run& run, std::string_view text) {
  return with_letters(run, text, [](bool, bool first) { return first; });
}

std::string replace(Run& run, std::string_view text, std::string_view old, std::string_view with,
                    int64_t count) {
  if (old.empty()) run.fail("replace expected something to look for, got an empty string");
  std::string result;
  const std::vector<std::string_view> parts = split_at(run, text, old, count);
  for (size_t i = 0; i < parts.size(); ++i) {
    run.spend(1 + std::ssize(parts[i]) / 16 + std::ssize(with) / 16);
    if (i > 0) result += with;
    result += parts[i];
  }
  return result;
}

const Builtin* find_method(std::string_view name) { return find_builtin(kMethods, name); }

}  // namespace hearth::text::jinja
