#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/jinja.h"

namespace hearth::text::jinja {

struct Statement;
struct Builtin;
class Value;

/// An undefined variable or attribute. `name`: its name for messages.
struct Undefined {
  std::string name;
};

/// Variables of a namespace() object. Namespaces are the only values that a template can modify.
using Namespace = std::map<std::string, Value, std::less<>>;

/// Reference to a scope of the rendering (Scopes). After the scope is closed, Scopes can detect this by
/// `serial`.
struct ScopeRef {
  size_t index = 0;
  int64_t serial = 0;
};

/// Closure: a macro or the body of a {% call %} block, with its enclosing scope.
struct Macro {
  const Statement* statement = nullptr;
  ScopeRef scope;
};

/// State of a {% for %} loop, which templates access by the variable `loop`.
struct Loop {
  const Statement* recursive =
      nullptr;     ///< statement, if the loop is {% for ... recursive %}; null: the loop cannot be called
  ScopeRef scope;  ///< enclosing scope of the loop
  int64_t depth = 1;
  int64_t index = 0;
  int64_t length = 0;
  const std::vector<Value>* items = nullptr;
};

/// Python type that a list is printed as: a list, a tuple, a list of tuples, or dict_items.
enum class PrintType : uint8_t { plain, tuple, tuples, items };

/// A value in a template: immutable, shared JSON, or a value that JSON cannot represent (undefined,
/// namespace, loop, macro, function).
class Value {
 public:
  Value() = default;
  Value(Json json) : data_(std::make_shared<const Json>(std::move(json))) {}  // NOLINT: on purpose implicit
  static Value undefined(std::string name);
  static Value boolean(bool value);
  /// Returns a value that refers to `json` without copying; `json` must outlive the rendering.
  static Value view(const Json& json) {
    return Value(std::shared_ptr<const Json>(std::shared_ptr<const Json>(), &json), 0);
  }
  /// Returns a value that refers to a namespace, which must outlive all values of the rendering.
  static Value of(Namespace* namespace_object) { return Value(namespace_object, 0); }
  static Value of(std::shared_ptr<const Loop> loop) { return Value(std::move(loop), 0); }
  static Value of(Macro macro) { return Value(macro, 0); }
  static Value of(const Builtin* function) { return Value(function, 0); }

  /// Returns a value for `json`, which is part of this value's JSON; both share ownership of the full JSON.
  Value part(const Json& json) const;
  /// Sets the Python type that the list is printed as.
  Value with_print_type(PrintType print_type) && {
    print_type_ = print_type;
    return std::move(*this);
  }
  PrintType print_type() const { return print_type_; }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  /// Returns the JSON of this value; null if it has none.
  const Json* json() const;
  Namespace* namespace_object() const;
  const Loop* loop() const;
  const Macro* macro() const;
  bool is_callable() const;
  /// Returns the string; nothing if the value is not a string.
  std::optional<std::string_view> string() const;

 private:
  using Data = std::variant<Undefined, std::shared_ptr<const Json>, Namespace*, std::shared_ptr<const Loop>,
                            Macro, const Builtin*>;
  Value(Data data, int) : data_(std::move(data)) {}

  Data data_;
  PrintType print_type_ = PrintType::plain;
};

/// Implements Python's bool().
bool is_true(const Value& value);
/// Names the type of a value for messages: "a string", "a list", ...
std::string kind_of(const Value& value);
/// Implements Python's ==: 1 == 1.0 == true, and the order of keys does not matter.
bool equal(const Json& a, const Json& b);
/// Returns a number (or boolean, as in Python) as an integer or float; nothing for other values.
std::optional<int64_t> integer_of(const Json& json);
std::optional<double> number_of(const Json& json);
std::optional<int64_t> integer_of(const Value& value);
std::optional<double> number_of(const Value& value);

/// Appends Python's repr() or str(), which differ for strings.
void append_repr(std::string& text, const Json& json);
void append_str(std::string& text, const Json& json);
/// Appends Python's str() of a list that is printed as the type `print_type`.
void append_list(std::string& text, const Json& list, PrintType print_type);

/// Returns the name under which a Python key is stored in a JSON object: strings unchanged, integers after a
/// byte that never occurs in UTF-8. nullopt for other types.
std::optional<std::string> key_in_mapping(const Value& key);
/// Returns the Python key (string or integer) for a member name of a JSON object. Inverse of
/// key_in_mapping().
Json key_of_mapping(std::string_view name);

struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  ///< number of spaces per nesting level; negative: all in one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
/// Implements Python's json.dumps.
std::string dump(const Json& json, const DumpOptions& options);

/// Cost of copying or comparing JSON. `work`: four units per value and key, plus a sixteenth of the bytes.
/// `depth`: nesting depth.
struct Weight {
  int64_t work = 0;
  int depth = 0;
};
Weight weigh(const Json& json);
/// Returns the number of values and keys in JSON, including nested ones.
int64_t num_parts(const Json& json);

}  // namespace hearth::text::jinja
