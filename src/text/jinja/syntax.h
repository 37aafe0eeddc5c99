#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/library.h"
#include "text/jinja/value.h"

namespace hearth::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

enum class ExpressionKind {
  literal,    ///< value
  name,       ///< text
  list,       ///< operands
  tuple,      ///< operands, printed as Python prints a tuple
  mapping,    ///< operands: key, value, key, value ...; a null key: all entries of the value
  space,      ///< namespace(...): as mapping
  attribute,  ///< operands[0] . text
  item,       ///< operands[0] [ operands[1] ]
  slice,      ///< operands[0] [ 1 : 2 : 3 ], null where left out
  filter,     ///< operands[0] | builtin(operands[1...], null where left out)
  test,       ///< operands[0] is builtin(...)
  method,     ///< operands[0] . builtin(...)
  function,   ///< builtin(operands[0...])
  format,     ///< operands[0] . text(operands[1...], words): the methods with any number of arguments
  macro,      ///< text(operands..., words)
  negate,
  negation,  ///< not
  arithmetic,
  compare,      ///< operands with symbols between them
  conjunction,  ///< and
  disjunction,  ///< or
  choice,       ///< operands[0] if operands[1] else operands[2] (or null)
  concatenation,
  unsupported  ///< fails with text when it is evaluated
};

struct Expression {
  ExpressionKind kind = ExpressionKind::literal;
  int line = 0;
  int depth = 1;
  std::string text;
  Json value;
  const Builtin* builtin = nullptr;
  std::vector<ExpressionPtr> operands;
  /// compare: the operators; macro, format: the names of the last arguments, or "*" and "**".
  std::vector<std::string> words;
};

/// Name of the variable with the text that {% filter %} and {% set %} blocks pass to their filters. The blank
/// keeps it from clashing with names in templates.
inline constexpr const char* kBodyText = "body text";

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind {
  text,
  print,
  choice,
  loop,
  assign,
  assign_block,
  scope,
  filtered,
  macro,
  call,
  generation,
  stop,
  next
};

struct Parameter {
  std::string name;
  ExpressionPtr preset;
};

/// Variables that a macro has if its body uses them.
struct SpecialNames {
  bool caller = false;   ///< body of the {% call %} block that calls it
  bool varargs = false;  ///< positional arguments beyond its parameters
  bool kwargs = false;   ///< named arguments beyond its parameters
};

/// A condition (null: else) and what it guards.
struct Branch {
  ExpressionPtr condition;
  Body body;
};

struct Statement {
  StatementKind kind = StatementKind::text;
  int line = 0;
  std::string text;                ///< text; macro's name; assign: the namespace, or empty
  std::vector<std::string> names;  ///< loop, assign: what is assigned to
  ExpressionPtr expression;        ///< print, loop, assign, call; assign_block, filtered: filters of the body
  ExpressionPtr filter;            ///< loop: if
  bool recursive = false;          ///< loop
  std::vector<Parameter> parameters;  ///< macro, call; scope ({% with %}): its variables
  SpecialNames special;               ///< macro, call
  std::vector<Branch> branches;       ///< choice
  Body body;                          ///< loop, assign_block, scope, filtered, macro, call, generation
  Body otherwise;                     ///< loop: else
};

/// A parsed template.
struct Program {
  std::string name;
  std::string source;
  Body body;
  bool marks_generation = false;
};

std::unique_ptr<const Program> parse(std::string_view source, std::string name);

}  // namespace hearth::text::jinja
