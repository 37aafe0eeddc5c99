#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::text::jinja {

/// Kind of a token. Token::text is the value of a string, and the source text of other tokens.
enum class TokenKind {
  text,            ///< text outside of tags, after removing white space by the rules of tags
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  string,  ///< string literal: its text without quotes, with escapes decoded
  integer,
  real,
  symbol,  ///< an operator or a bracket
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 0;
};

/// Splits a template into tokens, as Jinja does with trim_blocks and lstrip_blocks and without
/// keep_trailing_newline. Removes comments, and converts {% raw %} blocks to text. The last token is `end`.
/// Throws a UserError "NAME:LINE: ..." for a syntax error.
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace hearth::text::jinja
