#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/syntax.h"
#include "text/jinja/token_reader.h"

namespace hearth::text::jinja {

/// Recursive-descent parser of expressions with the operator precedences of Jinja's parser.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& tokens) : tokens_(tokens) {}

  /// Parses an expression, including `x if y else z`.
  ExpressionPtr parse();
  /// Parses an expression without `x if y else z`, as after `for ... in`.
  ExpressionPtr parse_condition();
  /// Parses an expression, or a tuple if a comma follows. `with_conditional`: true if `x if y else z` is
  /// allowed.
  ExpressionPtr parse_tuple(bool with_conditional);

  /// Parses any number of `|filter` and `is test` that follow `subject`.
  ExpressionPtr parse_filters(ExpressionPtr subject);
  /// Returns an expression that refers to the rendered body of the current statement, to which its filters
  /// are applied.
  ExpressionPtr body_text() const { return make(ExpressionKind::name, tokens_.line(), {}, kBodyText); }
  /// Parses a filter after its '|'.
  ExpressionPtr parse_filter(ExpressionPtr subject);
  /// Special names (caller, varargs, kwargs) that occurred in the expressions parsed since this member was
  /// last assigned.
  SpecialNames special;

 private:
  struct Call {
    std::vector<ExpressionPtr> operands;
    /// Names of the keyword arguments, which are the last operands; "*" or "**" for an argument to unpack.
    std::vector<std::string> names;

    bool unpacks() const {
      return std::ranges::any_of(names, [](auto& name) { return name[0] == '*'; });
    }
  };

  ExpressionPtr make(ExpressionKind kind, int line, std::vector<ExpressionPtr> operands,
                     std::string text = {}) const;
  template <typename Part>
  ExpressionPtr parse_left(std::initializer_list<std::string_view> symbols, Part part);
  template <typename Part>
  ExpressionPtr parse_logic(std::string_view word, ExpressionKind kind, Part part);
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_compare();
  std::string take_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_power();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_name();
  ExpressionPtr parse_string();
  ExpressionPtr parse_number();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_list();
  ExpressionPtr parse_mapping();
  ExpressionPtr parse_postfix(ExpressionPtr subject);
  ExpressionPtr parse_attribute(ExpressionPtr subject);
  ExpressionPtr parse_item(ExpressionPtr subject);
  ExpressionPtr parse_bound(std::initializer_list<std::string_view> ends);
  ExpressionPtr parse_function(const std::string& name, int line);
  ExpressionPtr parse_test(ExpressionPtr subject);
  /// True if the next token can start the argument of a test that is written without parentheses ("is
  /// divisibleby 3").
  bool starts_argument() const;
  ExpressionPtr mapping_of(Call call, ExpressionKind kind, int line, std::string_view function);
  std::string take_argument_name();
  Call parse_call();
  ExpressionPtr literal(Json value, int line) const;
  /// Returns an expression that throws the error `what` only when it is evaluated, because a template may
  /// have it in a branch that is never taken.
  ExpressionPtr unsupported(std::string what, int line) const;
  ExpressionPtr formatted(ExpressionPtr subject, Call call, std::string name, int line) const;
  /// Returns the call of a builtin as an expression: operand 0 is `subject`, followed by one operand per
  /// parameter.
  ExpressionPtr bound(ExpressionKind kind, const Builtin& builtin, ExpressionPtr subject, Call call,
                      int line) const;

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace hearth::text::jinja
