#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace hearth::text::jinja {

/// State of a rendering that builtin functions use: options, current line (for messages), and the remaining
/// work.
class Run {
 public:
  Run(std::string_view template_name, const RenderOptions& options)
      : options_(options), work_left_(options.limit_work), template_name_(template_name) {}

  /// Subtracts `work` units from the remaining work. Throws a UserError if none is left; see
  /// RenderOptions::limit_work.
  void spend(int64_t work);
  /// Charges the work of copying JSON. Throws a UserError if the JSON is nested too deep.
  void spend_copy(const Json& json);
  /// Charges the worst case of searching for `part` in `text`: the product of their sizes.
  void spend_search(std::string_view text, std::string_view part);
  /// Charges the work of comparing two values.
  void spend_compare(const Value& a, const Value& b);
  /// Throws a UserError "NAME:LINE: WHAT" for the current line of the template.
  [[noreturn]] void fail(std::string_view what) const;
  void at_line(int line) { line_ = line; }
  const RenderOptions& options() const { return options_; }

 private:
  const RenderOptions& options_;
  int64_t work_left_;
  std::string_view template_name_;
  int line_ = 0;
};

constexpr size_t kMaxParameters = 5;
using Arguments = std::span<const Value>;

/// A builtin filter, test, method or function. apply() implements it: `subject` is the operand before it
/// (undefined for a function), and `arguments` has one value per parameter, undefined if not passed.
struct Builtin {
  std::string_view name;
  Value (*apply)(Run& run, const Value& subject, Arguments arguments) = nullptr;
  std::array<std::string_view, kMaxParameters> parameters = {};
  size_t num_required = 0;

  size_t num_parameters() const;
};

/// Returns the builtin with a name, from a table or from that of the kind; null if there is none.
const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(std::string_view name);
const Builtin* find_function(std::string_view name);

/// Returns Python's str() of a value; fails for a value that cannot be printed.
std::string text_of(Run& run, const Value& value);
/// Returns the JSON of a value, to store it in a list or mapping; fails for a value without JSON.
Json json_of(Run& run, const Value& value);
/// Returns the values over which a loop iterates: elements of a list, keys of a mapping, characters of a
/// string; empty for an undefined value.
std::vector<Value> items_of(Run& run, const Value& value);
/// Returns the entries of a mapping: the argument of dict() or namespace(), or the operand of **. The
/// returned keys refer to `mapping`. Fails for other values.
std::vector<std::pair<std::string_view, Value>> entries_of(Run& run, const Value& mapping);
/// Returns len(value); fails for values without a length.
int64_t length_of(Run& run, const Value& value);
/// Returns value.name or value[key]; an undefined value if there is none.
Value attribute_of(Run& run, const Value& value, std::string_view name);
Value item_of(Run& run, const Value& value, const Value& key);
/// Return a < b (for numbers or strings only) and a == b by Python's rules.
bool is_less(Run& run, const Value& a, const Value& b);
bool is_equal(Run& run, const Value& a, const Value& b);
/// True if `part` is in `whole` (Python's operator in).
bool is_in(Run& run, const Value& part, const Value& whole);
/// Returns the result of the comparison `a word b`. `word`: ==, !=, <, <=, >, >=, in or not in.
bool compares(Run& run, std::string_view word, const Value& a, const Value& b);
/// Returns `a symbol b` by Python's rules for numbers, strings and lists; fails for other types. `symbol`: an
/// operator such as +.
Value arithmetic(Run& run, std::string_view symbol, const Value& a, const Value& b);
/// Implements `subject % value` for a string; the value is a tuple, a mapping or a single argument.
Value format_by_percent(Run& run, const Value& subject, const Value& value);
/// Returns value[first:last:step]. `bounds`: first, last and step, undefined if omitted.
Value slice_of(Run& run, const Value& value, std::span<const Value> bounds);

/// Implements loop.cycle(values...) for the loop `subject`.
Value cycled(Run& run, const Value& subject, std::span<const Value> values);

/// Returns a string or integer argument; `default_value` if it is undefined. Fails for other types.
std::string_view string_argument(Run& run, const Value& argument, std::string_view default_value = {});
int64_t integer_argument(Run& run, const Value& argument, int64_t default_value = 0);
/// Returns the string to which a method or filter is applied; fails for other types. `builtin`: name for the
/// message.
std::string_view string_subject(Run& run, const Value& subject, std::string_view builtin);
/// Returns a list value with these items; fails for an item without JSON.
Value list_value(Run& run, const std::vector<Value>& items);

}  // namespace hearth::text::jinja
