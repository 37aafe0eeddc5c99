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
  /// Parses an expression, or a tuple if a comma follows. `with_conditional`: allows `x if y else z`.
  ExpressionPtr parse_tuple(bool with_conditional);

  /// Parses any number of `|filter` and `is test` after the subject.
  ExpressionPtr parse_filters(ExpressionPtr subject);
  /// Returns a reference to the text of a statement's body, the subject of its filters.
  ExpressionPtr body_text() const { return make(ExpressionKind::name, tokens_.line(), {}, kBodyText); }
  /// Parses a filter after its '|'.
  ExpressionPtr parse_filter(ExpressionPtr subject);
  /// Special names (caller, varargs, kwargs) in the expressions parsed since this member was last assigned.
  SpecialNames special;

 private:
  struct Call {
    std::vector<ExpressionPtr> operands;
    std::vector<std::string> names;  ///< keyword names of the last operands; "*" or "**" for an unpacked one

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
  /// True if the next token can start an argument of a test without parentheses.
  bool starts_argument() const;
  ExpressionPtr mapping_of(Call call, ExpressionKind kind, int line, std::string_view function);
  std::string take_argument_name();
  Call parse_call();
  ExpressionPtr literal(Json value, int line) const;
  /// Returns an expression that fails with `what` when evaluated, since a template may have it in a branch
  /// that is not taken.
  ExpressionPtr unsupported(std::string what, int line) const;
  ExpressionPtr formatted(ExpressionPtr subject, Call call, std::string name, int line) const;
  /// Returns a call of a builtin: operand 0 is `subject`, then one operand per parameter.
  ExpressionPtr bound(ExpressionKind kind, const Builtin& builtin, ExpressionPtr subject, Call call,
                      int line) const;

  TokenReader& tokens_;
  int depth_ = 0;
};

}  // namespace hearth::text::jinja
