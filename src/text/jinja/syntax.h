#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/library.h"
#include "text/jinja/value.h"

namespace hearth::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// Kind of an expression; the comments name the members that it uses.
enum class ExpressionKind {
  literal,           ///< value
  name,              ///< text
  list,              ///< operands
  tuple,             ///< operands, printed as Python prints a tuple
  mapping,           ///< operands: key, value, key, value ...; null key: ** of the value
  namespace_object,  ///< namespace(...): operands as in mapping
  attribute,         ///< operands[0] . text
  item,              ///< operands[0] [ operands[1] ]
  slice,             ///< operands[0] [ 1 : 2 : 3 ], null if omitted
  filter,            ///< operands[0] | builtin(operands[1...], null if omitted)
  test,              ///< operands[0] is builtin(...)
  method,            ///< operands[0] . builtin(...)
  function,          ///< builtin(operands[0...])
  format,            ///< operands[0] . text(operands[1...], words): a method with any number of arguments
  macro,             ///< text(operands..., words): a call of a macro, caller() or a recursive loop
  negate,
  negation,  ///< not
  arithmetic,
  compare,      ///< operands with symbols between them
  conjunction,  ///< and
  disjunction,  ///< or
  conditional,  ///< conditional expression: operands[0] if operands[1] else operands[2] (or null)
  concatenation,
  unsupported  ///< fails with text when it is evaluated
};

/// A node of the syntax tree of an expression.
struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 0;
  int depth = 1;
  std::string text;
  Json value;
  const Builtin* builtin = nullptr;
  std::vector<ExpressionPtr> operands;
  /// compare: the operators; macro, format: keyword names of the last arguments, "*" or "**" for an unpacked
  /// one.
  std::vector<std::string> words;
};

/// Name of the variable with the text that {% filter %} and {% set %} blocks pass to their filters. The blank
/// keeps it from clashing with names in templates.
inline constexpr const char* kBodyText = "body text";

struct Statement;
using Body = std::vector<Statement>;

/// Kind of a statement: choice is {% if %}, loop is {% for %}, scope is {% with %}, stop is {% break %} and
/// next is {% continue %}.
enum class StatementKind {
  text,
  print,
  conditional,
  loop,
  assign,
  assign_block,
  scope,
  filtered,
  macro,
  call,
  generation,
  break_loop,
  next
};

/// A parameter of a macro with its default value (null if it has none).
struct Parameter {
  std::string name;
  ExpressionPtr default_value;
};

/// Special variables of a macro, which are defined only if its body uses them.
struct SpecialNames {
  bool caller = false;   ///< function that renders the body of the {% call %} block around the call
  bool varargs = false;  ///< positional arguments without a parameter
  bool kwargs = false;   ///< keyword arguments without a parameter
};

/// A branch of {% if %}: its body is rendered if the condition is true. Null condition: {% else %}.
struct Branch {
  ExpressionPtr condition;
  Body body;
};

/// A statement; which members are used depends on its kind.
struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text;                ///< text: itself; macro: its name; assign: the namespace, or empty
  std::vector<std::string> names;  ///< loop, assign: names of the assigned variables
  /// Value of print, loop, assign, call; assign_block, filtered: filters of the body.
  ExpressionPtr expression;
  ExpressionPtr filter;               ///< loop: condition after `if`, or null
  bool recursive = false;             ///< loop: true for {% for ... recursive %}
  std::vector<Parameter> parameters;  ///< macro, call: parameters; scope ({% with %}): variables
  SpecialNames special;               ///< macro, call: names that the body uses
  std::vector<Branch> branches;       ///< choice
  Body body;       ///< body of loop, assign_block, scope, filtered, macro, call, generation
  Body otherwise;  ///< loop: else
};

/// A parsed template.
struct Program {
  std::string name;
  std::string source;
  Body body;
  bool marks_generation = false;
};

/// Parses a template. Throws a UserError "NAME:LINE: ..." for a syntax error or an unsupported tag.
std::unique_ptr<const Program> parse(std::string_view source, std::string name);

}  // namespace hearth::text::jinja
