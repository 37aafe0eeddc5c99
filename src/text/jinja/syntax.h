#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/library.h"
#include "text/jinja/value.h"

namespace hearth::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

/// Kind of an expression. The comments give the members of Expression that each kind uses, in the form in
/// which a template writes them.
enum class ExpressionKind {
  literal,           ///< constant `value`
  name,              ///< variable named `text`
  list,              ///< list of `operands`
  tuple,             ///< tuple of `operands`; printed as Python prints a tuple
  mapping,           ///< operands: key, value, key, value, ...; null as key: the value is expanded (**)
  namespace_object,  ///< namespace(...), with operands as in mapping
  attribute,         ///< `operands[0].text`
  item,              ///< `operands[0][operands[1]]`
  slice,             ///< `operands[0][operands[1]:operands[2]:operands[3]]`; null: omitted
  filter,            ///< `operands[0] | builtin(operands[1], ...)`; null: omitted
  test,              ///< `operands[0] is builtin(operands[1], ...)`
  method,            ///< `operands[0].builtin(operands[1], ...)`
  function,          ///< `builtin(operands[0], ...)`
  format,  ///< `operands[0].text(operands[1], ...)`, a method with any number of arguments; names in `words`
  macro,   ///< `text(operands[0], ...)`, a call of a macro, caller() or a recursive loop; names in `words`
  negate,  ///< `-operands[0]`
  negation,     ///< `not operands[0]`
  arithmetic,   ///< `operands[0] text operands[1]`
  compare,      ///< `operands[0] words[0] operands[1] words[1] operands[2] ...`
  conjunction,  ///< `operands[0] and operands[1]`
  disjunction,  ///< `operands[0] or operands[1]`
  conditional,  ///< `operands[0] if operands[1] else operands[2]`; null: no else
  concatenation,
  unsupported  ///< fails with the message `text` when it is evaluated
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
  /// Kind compare: the operators. Kinds macro and format: names of the last arguments; "*" or "**" for an
  /// argument to unpack.
  std::vector<std::string> words;
};

/// Name of a hidden variable: the rendered body of a {% filter %} or {% set %} block, to which the filters of
/// the block are applied. The blank keeps it distinct from names in templates.
inline constexpr const char* kBodyText = "body text";

struct Statement;
using Body = std::vector<Statement>;

/// Kind of a statement. conditional: {% if %}; loop: {% for %}; scope: {% with %}; break_loop: {% break %};
/// next: {% continue %}.
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
  std::string text;                ///< kind text: the text; macro: its name; assign: the namespace, or empty
  std::vector<std::string> names;  ///< kinds loop and assign: names of the assigned variables
  /// Kinds print, loop, assign and call: the value. Kinds assign_block and filtered: filters of the body.
  ExpressionPtr expression;
  ExpressionPtr filter;               ///< kind loop: condition after `if`, or null
  bool recursive = false;             ///< kind loop: true for {% for ... recursive %}
  std::vector<Parameter> parameters;  ///< kinds macro and call: parameters; scope ({% with %}): variables
  SpecialNames special;               ///< kinds macro and call: special names that the body uses
  std::vector<Branch> branches;       ///< kind conditional: its branches
  Body body;       ///< body of loop, assign_block, scope, filtered, macro, call and generation
  Body otherwise;  ///< kind loop: body of {% else %}
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
