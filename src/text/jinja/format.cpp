#include "text/jinja/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;
constexpr int64_t kMaxPrecision = 100;

/// A format specification of Python: [[fill]align][sign][#][0][width][grouping][.precision][type].
struct Spec {
  std::string fill = " ";
  char align = 0;  ///< <, >, ^ or =; 0: default of the value's type
  char sign = '-';
  bool alternate = false;
  bool zero = false;
  int64_t width = 0;
  char grouping = 0;
  int64_t precision = -1;
  char type = 0;
};

/// Formatted sign and digits of a number, separate because padding may go between them.
struct Number {
  std::string sign;
  std::string digits;
};

bool is_one_of(char c, std::string_view characters) {
  return c != 0 && characters.find(c) != characters.npos;
}

/// Reader that consumes a text from the front.
class Cursor {
 public:
  Cursor(Run& run, std::string_view text) : run_(run), text_(text) {}

  bool is_done() const { return text_.empty(); }
  char peek(size_t ahead = 0) const { return ahead < text_.size() ? text_[ahead] : '\0'; }
  char take() {
    const char c = peek();
    text_.remove_prefix(std::min<size_t>(1, text_.size()));
    return c;
  }
  /// Consumes the next character if it is one of `characters`, and returns it; otherwise returns 0.
  char take_any(std::string_view characters) { return is_one_of(peek(), characters) ? take() : '\0'; }
  /// Consumes the text up to and including the character `end`, and returns the text before `end`. Fails if
  /// there is none.
  std::string_view take_until(char end) {
    const size_t size = text_.find(end);
    if (size == text_.npos) run_.fail(fmt::format("expected '{}' in the format", end));
    const std::string_view found = text_.substr(0, size);
    text_.remove_prefix(size + 1);
    return found;
  }
  std::string_view take_first_character() {
    const std::string_view found = text_.substr(0, first_character(text_).bytes);
    text_.remove_prefix(found.size());
    return found;
  }
  /// Consumes an integer of at most `max` and returns it; returns `default_value` if there are no digits.
  int64_t take_number(int64_t default_value, int64_t max) {
    if (!is_one_of(peek(), "0123456789")) return default_value;
    int64_t value = 0;
    while (is_one_of(peek(), "0123456789")) {
      value = 10 * value + (take() - '0');
      if (value > max) run_.fail(fmt::format("a width or precision above {} is not supported", max));
    }
    return value;
  }

 private:
  Run& run_;
  std::string_view text_;
};

Spec parse_spec(Run& run, std::string_view text) {
  Spec spec;
  Cursor cursor(run, text);
  const size_t first = text.empty() ? 0 : first_character(text).bytes;
  if (is_one_of(cursor.peek(first), "<>^=")) spec.fill = cursor.take_first_character();
  spec.align = cursor.take_any("<>^=");
  if (const char sign = cursor.take_any("+- ")) spec.sign = sign;
  spec.alternate = cursor.take_any("#") != 0;
  spec.zero = cursor.take_any("0") != 0;
  spec.width = cursor.take_number(0, kMaxWidth);
  spec.grouping = cursor.take_any(",_");
  if (cursor.take_any(".") != 0) spec.precision = cursor.take_number(-1, kMaxPrecision);
  spec.type = cursor.take();
  if (!cursor.is_done()) run.fail(fmt::format("the format specification '{}' is not supported", text));
  return spec;
}

std::string padded(Run& run, const Number& number, const Spec& spec, char align) {
  const int64_t count = spec.width - num_characters(number.sign) - num_characters(number.digits);
  if (count <= 0) return number.sign + number.digits;
  run.spend(count);
  std::string left, right;
  const int64_t num_left = align == '<' ? 0 : align == '^' ? count / 2 : count;
  for (int64_t i = 0; i < count; ++i) (i < num_left ? left : right) += spec.fill;
  if (align == '=') return number.sign + left + number.digits;
  return left + number.sign + number.digits + right;
}

std::string grouped(std::string digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3;) digits.insert(at -= 3, 1, separator);
  return digits;
}

std::string integer_digits(Run& run, uint64_t value, const Spec& spec) {
  switch (spec.type) {
    case 'b':
      return (spec.alternate ? "0b" : "") + fmt::format("{:b}", value);
    case 'o':
      return (spec.alternate ? "0o" : "") + fmt::format("{:o}", value);
    case 'x':
      return (spec.alternate ? "0x" : "") + fmt::format("{:x}", value);
    case 'X':
      return (spec.alternate ? "0X" : "") + fmt::format("{:X}", value);
    case 0:
    case 'd':
    case 'n':
      return fmt::format("{}", value);
    default:
      run.fail(fmt::format("the format type '{}' is not supported", spec.type));
  }
}

std::string real_digits(Run& run, double value, const Spec& spec) {
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", value, precision);
    case 'e':
      return fmt::format("{:.{}e}", value, precision);
    case 'E':
      return fmt::format("{:.{}E}", value, precision);
    case 'g':
    case 'n':
      return fmt::format("{:.{}g}", value, precision);
    case 'G':
      return fmt::format("{:.{}G}", value, precision);
    case '%':
      return fmt::format("{:.{}f}%", value * 100, precision);
    default:
      run.fail(fmt::format("the format type '{}' is not supported for a number", spec.type));
  }
}

std::string repr_of(Run& run, const Value& value) {
  if (!value.string()) return text_of(run, value);
  run.spend(std::ssize(*value.string()) / 16);
  std::string text;
  append_repr(text, *value.json());
  return text;
}

Number number_parts(Run& run, const Value& value, const Spec& spec) {
  const auto whole = integer_of(value);
  const double real = *number_of(value);
  const bool negative = whole ? *whole < 0 : std::signbit(real);
  Number number{.sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign), .digits = ""};
  if (whole && !is_one_of(spec.type, "eEfFgG%")) {
    const uint64_t magnitude =
        negative ? uint64_t{0} - static_cast<uint64_t>(*whole) : static_cast<uint64_t>(*whole);
    number.digits = integer_digits(run, magnitude, spec);
  } else if (spec.type == 0 && spec.precision < 0) {
    number.digits = text_of(run, Json(std::abs(real)));
  } else {
    number.digits = real_digits(run, std::abs(real), spec);
  }
  if (spec.grouping != 0) number.digits = grouped(std::move(number.digits), spec.grouping);
  return number;
}

std::string formatted_text(Run& run, std::string_view text, const Spec& spec, char align) {
  if (spec.precision >= 0) text = text.substr(0, byte_of_character(text, spec.precision));
  return padded(run, {.sign = "", .digits = std::string(text)}, spec, align);
}

std::string formatted_number(Run& run, const Value& value, Spec spec) {
  constexpr int64_t kLongestNumber = 32;  // In work units: up to 309 digits plus the precision.
  run.spend(kLongestNumber);
  if (spec.zero && spec.grouping != 0) run.fail("zeros before grouped digits are not supported");
  if (spec.zero && spec.align == 0) {
    spec.fill = "0";
    spec.align = '=';
  }
  return padded(run, number_parts(run, value, spec), spec, spec.align == 0 ? '>' : spec.align);
}

/// Implements Python's format(value, spec) with `text` as spec.
std::string formatted(Run& run, const Value& value, std::string_view text) {
  if (text.empty()) return text_of(run, value);
  const Spec spec = parse_spec(run, text);
  if (value.string()) {
    if (spec.align == '=' || spec.zero || !(spec.type == 0 || spec.type == 's'))
      run.fail(fmt::format("the format specification '{}' is not supported for a string", text));
    return formatted_text(run, *value.string(), spec, spec.align == 0 ? '<' : spec.align);
  }
  if (!number_of(value)) run.fail(fmt::format("cannot format {} by '{}'", kind_of(value), text));
  return formatted_number(run, value, spec);
}

const Value& named(Run& run, const FormatArguments& arguments, std::string_view name) {
  const size_t first = arguments.positional().size();
  for (size_t i = 0; i < arguments.names.size(); ++i) {
    if (arguments.names[i] == name) return arguments.values[first + i];
  }
  run.fail(fmt::format("the format has a field '{}', for which there is no argument", name));
}

/// Implements str.format: replaces the fields in braces of a text.
class BraceFormat {
 public:
  BraceFormat(Run& run, const FormatArguments& arguments) : run_(run), arguments_(arguments) {}

  std::string format(std::string_view text) {
    Cursor cursor(run_, text);
    std::string result;
    while (!cursor.is_done()) {
      const char c = cursor.take();
      if ((c == '{' || c == '}') && cursor.peek() == c) {
        result += cursor.take();
      } else if (c == '}') {
        run_.fail("the format has a single '}'; write '}}'");
      } else if (c == '{') {
        result += field(cursor.take_until('}'));
      } else {
        result += c;
      }
    }
    run_.spend(std::ssize(result) / 16);
    return result;
  }

 private:
  std::string field(std::string_view text) {
    if (text.find('{') != text.npos)
      run_.fail("fields inside the fields of a format string are not supported");
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string_view spec = text.substr(std::min(colon + 1, text.size()));
    std::string_view name = text.substr(0, colon);
    const size_t mark = std::min(name.find('!'), name.size());
    const std::string_view conversion = name.substr(mark);
    const Value value = value_of(name.substr(0, mark));
    run_.spend(4);
    if (conversion.empty()) return formatted(run_, value, spec);
    if (conversion == "!s") return formatted(run_, Json(text_of(run_, value)), spec);
    if (conversion == "!r") return formatted(run_, Json(repr_of(run_, value)), spec);
    run_.fail(fmt::format("the conversion '{}' is not supported", conversion));
  }

  Value value_of(std::string_view path) {
    const size_t size = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, size));
    path.remove_prefix(size);
    while (!path.empty()) {
      const bool is_item = path[0] == '[';
      const size_t end = std::min(path.find_first_of(is_item ? "]" : ".[", 1), path.size());
      const std::string_view key = path.substr(1, end - 1);
      value = is_item ? item_of(run_, value, key_of(key)) : attribute_of(run_, value, key);
      path.remove_prefix(std::min(end + (is_item ? 1 : 0), path.size()));
      if (!path.empty() && path[0] != '.' && path[0] != '[')
        run_.fail("expected '.' or '[' in a field of the format");
    }
    return value;
  }

  Value key_of(std::string_view text) {
    Cursor cursor(run_, text);
    const int64_t index = cursor.take_number(-1, INT32_MAX);
    return cursor.is_done() && index >= 0 ? Value(Json(index)) : Value(Json(text));
  }

  const Value& argument(std::string_view name) {
    Cursor cursor(run_, name);
    const int64_t index = name.empty() ? next_++ : cursor.take_number(-1, INT32_MAX);
    if (!cursor.is_done() || index < 0) return named(run_, arguments_, name);
    if (index >= std::ssize(arguments_.positional()))
      run_.fail(fmt::format("the format has a field {}, for which there is no argument", index));
    return arguments_.values[static_cast<size_t>(index)];
  }

  Run& run_;
  const FormatArguments& arguments_;
  int64_t next_ = 0;
};

/// Implements the operator % of strings: replaces the %-conversions of a text.
class PercentFormat {
 public:
  /// `values`: for %s and the like, in order. `mapping`: for %(name)s; undefined if there is none.
  PercentFormat(Run& run, std::span<const Value> values, Value mapping)
      : run_(run), values_(values), mapping_(std::move(mapping)) {}

  std::string format(std::string_view text) {
    Cursor cursor(run_, text);
    std::string result;
    while (!cursor.is_done()) {
      const char c = cursor.take();
      if (c == '%') {
        result += conversion(cursor);
      } else {
        result += c;
      }
    }
    if (next_ < values_.size() && mapping_.is_undefined())
      run_.fail("the format has fewer fields (%) than arguments");
    run_.spend(std::ssize(result) / 16);
    return result;
  }

 private:
  std::string conversion(Cursor& cursor) {
    Value value;
    const bool has_name = cursor.take_any("(") != 0;
    if (has_name) value = item_of(run_, mapping_, Json(cursor.take_until(')')));
    Spec spec{.align = '>'};
    while (const char flag = cursor.take_any("-+ #0")) set_flag(spec, flag);
    spec.width = cursor.take_number(0, kMaxWidth);
    if (cursor.take_any(".") != 0) spec.precision = cursor.take_number(0, kMaxPrecision);
    spec.type = cursor.take();
    run_.spend(4);
    if (spec.type == '%') return "%";
    return converted(has_name ? value : next(), spec);
  }

  static void set_flag(Spec& spec, char flag) {
    if (flag == '-') spec.align = '<';
    if (flag == '#') spec.alternate = true;
    if (flag == '0') spec.zero = true;
    if (flag == '+' || (flag == ' ' && spec.sign != '+')) spec.sign = flag;
  }

  const Value& next() {
    if (next_ >= values_.size()) run_.fail("the format has more fields (%) than arguments");
    return values_[next_++];
  }

  std::string converted(const Value& value, Spec spec) {
    if (spec.type == 's') return formatted_text(run_, text_of(run_, value), spec, spec.align);
    if (spec.type == 'r') return formatted_text(run_, repr_of(run_, value), spec, spec.align);
    const auto number = number_of(value);
    if (!number || !is_one_of(spec.type, "diuxXoeEfFgG"))
      run_.fail(fmt::format("cannot format {} by '%{}'", kind_of(value), spec.type));
    if (is_one_of(spec.type, "iu")) spec.type = 'd';
    if (spec.zero && spec.align == '>') spec.align = 0;
    if (spec.type != 'd' || integer_of(value)) return formatted_number(run_, value, spec);
    if (!(std::abs(*number) < 9e18)) run_.fail(fmt::format("{} is not a number of 64 bits", *number));
    return formatted_number(run_, Json(static_cast<int64_t>(*number)), spec);
  }

  Run& run_;
  std::span<const Value> values_;
  Value mapping_;
  size_t next_ = 0;
};

}  // namespace

Value format_by_braces(Run& run, const Value& subject, const FormatArguments& arguments) {
  return Json(BraceFormat(run, arguments).format(string_subject(run, subject, "format")));
}

Value format_by_percent(Run& run, const Value& subject, const FormatArguments& arguments) {
  const std::string text = text_of(run, subject);
  if (arguments.names.empty()) return Json(PercentFormat(run, arguments.values, Value()).format(text));
  if (!arguments.positional().empty()) run.fail("format takes positional or named arguments, not both");
  Json mapping = Json::object();
  for (size_t i = 0; i < arguments.names.size(); ++i)
    mapping[arguments.names[i]] = json_of(run, arguments.values[i]);
  return Json(PercentFormat(run, {}, std::move(mapping)).format(text));
}

Value format_by_percent(Run& run, const Value& subject, const Value& value) {
  const std::string_view text = string_subject(run, subject, "%");
  if (value.print_type() == PrintType::tuple)
    return Json(PercentFormat(run, items_of(run, value), Value()).format(text));
  const bool is_mapping = value.json() != nullptr && value.json()->is_structured();
  return Json(PercentFormat(run, std::span(&value, 1), is_mapping ? value : Value()).format(text));
}

}  // namespace hearth::text::jinja
