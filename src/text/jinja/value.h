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

struct Undefined {
  std::string name;
};

/// What namespace() makes: the one thing that a template can change.
using Space = std::map<std::string, Value, std::less<>>;

/// Reference to a scope of the rendering (Scopes). It remains valid to check after the scope is closed.
struct ScopeRef {
  size_t index = 0;
  int64_t serial = 0;
};

/// Closure: a macro or the body of a {% call %} block, with its enclosing scope.
struct Macro {
  const Statement* statement = nullptr;
  ScopeRef scope;
};

/// The variable `loop`.
struct Loop {
  const Statement* recursive =
      nullptr;     ///< statement of a {% for ... recursive %} loop; null: the loop cannot be called
  ScopeRef scope;  ///< enclosing scope of the loop
  int64_t depth = 1;
  int64_t index = 0;
  int64_t length = 0;
  const std::vector<Value>* items = nullptr;
};

/// How Python prints a value that is stored as a list here.
enum class Look : uint8_t { plain, tuple, tuples, items };

/// A value of a template: JSON (shared, never changed), or one of the few things that JSON has no words for.
class Value {
 public:
  Value() = default;
  Value(Json json) : data_(std::make_shared<const Json>(std::move(json))) {}  // NOLINT: on purpose implicit
  static Value undefined(std::string name);
  static Value boolean(bool value);
  /// Refers to JSON that outlives the rendering.
  static Value view(const Json& json) {
    return Value(std::shared_ptr<const Json>(std::shared_ptr<const Json>(), &json), 0);
  }
  /// Refers to a namespace that outlives the rendering's values.
  static Value of(Space* space) { return Value(space, 0); }
  static Value of(std::shared_ptr<const Loop> loop) { return Value(std::move(loop), 0); }
  static Value of(Macro macro) { return Value(macro, 0); }
  static Value of(const Builtin* function) { return Value(function, 0); }

  /// A part of this value's JSON, kept alive by it.
  Value part(const Json& json) const;
  Value looking(Look look) && {
    look_ = look;
    return std::move(*this);
  }
  Look look() const { return look_; }

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  /// Null unless the value is JSON.
  const Json* json() const;
  Space* space() const;
  const Loop* loop() const;
  const Macro* macro() const;
  bool is_callable() const;
  /// The string, or nothing.
  std::optional<std::string_view> string() const;

 private:
  using Data = std::variant<Undefined, std::shared_ptr<const Json>, Space*, std::shared_ptr<const Loop>,
                            Macro, const Builtin*>;
  Value(Data data, int) : data_(std::move(data)) {}

  Data data_;
  Look look_ = Look::plain;
};

/// bool() of Python.
bool is_true(const Value& value);
/// "a string", "a list", ... for messages.
std::string kind_of(const Value& value);
/// == of Python: 1 == 1.0 == true, and the order of keys does not count.
bool equal(const Json& a, const Json& b);
/// A number of Python, to which booleans belong: its value as an integer or a float, or nothing.
std::optional<int64_t> integer_of(const Json& json);
std::optional<double> number_of(const Json& json);
std::optional<int64_t> integer_of(const Value& value);
std::optional<double> number_of(const Value& value);

/// repr() of Python, and str(), which differs for strings.
void append_repr(std::string& text, const Json& json);
void append_str(std::string& text, const Json& json);
/// Appends Python's str() of a list, printed in the given look.
void append_list(std::string& text, const Json& list, Look look);

/// Returns the JSON member name for a Python key: strings unchanged, integers after a byte that never occurs
/// in UTF-8; nullopt for other types.
std::optional<std::string> key_in_mapping(const Value& key);
/// Returns the Python key (string or integer) of a JSON member name. Inverse of key_in_mapping.
Json key_of_mapping(std::string_view name);

struct DumpOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  int indent = -1;  ///< blanks per level; negative: one line
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
/// json.dumps of Python.
std::string dump(const Json& json, const DumpOptions& options);

/// What copying or comparing costs: four for each part, and its bytes by sixteens.
struct Weight {
  int64_t work = 0;
  int depth = 0;
};
Weight weigh(const Json& json);
/// How many values and keys there are in it.
int64_t num_parts(const Json& json);

}  // namespace hearth::text::jinja
