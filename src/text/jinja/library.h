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

/// What a builtin may use of the rendering that calls it.
class Run {
 public:
  Run(std::string_view template_name, const RenderOptions& options)
      : options_(options), work_left_(options.limit_work), template_name_(template_name) {}

  /// UserError at the limit of work.
  void spend(int64_t work);
  /// As spend for a copy of JSON; UserError when it is nested too deep.
  void spend_copy(const Json& json);
  /// As spend for a search of `part` in `text`, however often `part` nearly stands there.
  void spend_search(std::string_view text, std::string_view part);
  /// As spend for a comparison.
  void spend_compare(const Value& a, const Value& b);
  /// UserError "NAME:LINE: ...".
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

/// A filter, test, method or function. `subject` is what stands before it (nothing for a function); there is
/// one argument for every parameter, undefined where left out.
struct Builtin {
  std::string_view name;
  Value (*apply)(Run& run, const Value& subject, Arguments arguments) = nullptr;
  std::array<std::string_view, kMaxParameters> parameters = {};
  size_t num_required = 0;

  size_t num_parameters() const;
};

/// Null when there is none of that name.
const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(std::string_view name);
const Builtin* find_function(std::string_view name);

/// str() of Python; fails for what cannot be printed.
std::string text_of(Run& run, const Value& value);
/// The JSON of a value that is to become part of a list or mapping; fails for what has none.
Json json_of(Run& run, const Value& value);
/// What a loop over the value goes through: the parts of a list, the keys of a mapping, the characters of a
/// string, nothing for an undefined value.
std::vector<Value> items_of(Run& run, const Value& value);
/// Returns the entries of a mapping: the argument of dict() or namespace(), or the operand of **. The
/// returned keys refer to `mapping`. Fails for other values.
std::vector<std::pair<std::string_view, Value>> entries_of(Run& run, const Value& mapping);
int64_t length_of(Run& run, const Value& value);
/// value.name and value[key].
Value attribute_of(Run& run, const Value& value, std::string_view name);
Value item_of(Run& run, const Value& value, const Value& key);
/// a < b for numbers and strings.
bool is_less(Run& run, const Value& a, const Value& b);
bool is_equal(Run& run, const Value& a, const Value& b);
/// part in whole
bool is_in(Run& run, const Value& part, const Value& whole);
/// Returns the result of the comparison `a word b`, where `word` is ==, !=, <, <=, >, >=, in or not in.
bool compares(Run& run, std::string_view word, const Value& a, const Value& b);
Value arithmetic(Run& run, std::string_view symbol, const Value& a, const Value& b);
/// Implements `subject % value` for a string; the value is a tuple, a mapping or a single argument.
Value format_by_percent(Run& run, const Value& subject, const Value& value);
Value slice_of(Run& run, const Value& value, std::span<const Value> bounds);

/// Implements loop.cycle(values...).
Value cycled(Run& run, const Value& subject, std::span<const Value> values);

/// An argument that must be what its name says, or is left out.
std::string_view string_argument(Run& run, const Value& argument, std::string_view preset = {});
int64_t integer_argument(Run& run, const Value& argument, int64_t preset = 0);
/// The string before a method or filter.
std::string_view string_subject(Run& run, const Value& subject, std::string_view builtin);
/// A list of values, which must have JSON.
Value list_value(Run& run, const std::vector<Value>& items);

}  // namespace hearth::text::jinja
