#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hearth::text::jinja {

enum class TokenKind {
  text,            ///< between the tags, with white space control done
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  string,  ///< its value
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

/// Splits a template as Jinja does with trim_blocks and lstrip_blocks set and keep_trailing_newline not set;
/// comments and {% raw %} are dealt with here. The last token is `end`. UserError "NAME:LINE: ...".
std::vector<Token> tokenize(std::string_view source, std::string_view name);

}  // namespace hearth::text::jinja
