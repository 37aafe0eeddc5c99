#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/lexer.h"

namespace hearth::text::jinja {

/// Cursor over the tokens of a template.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, std::string_view name) : tokens_(std::move(tokens)), name_(name) {}

  /// Returns a token without consuming it: the next one, or the one that is `ahead` tokens after it.
  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  int line() const { return peek().line; }

  bool is_symbol(std::string_view symbol, size_t ahead = 0) const;
  bool is_word(std::string_view word, size_t ahead = 0) const;
  /// Consumes the next token if it is the given symbol or word; otherwise returns false.
  bool take_symbol(std::string_view symbol);
  bool take_word(std::string_view word);
  /// Consume the next token; fail if it is another one than expected. `what`: description of the expected
  /// token for messages.
  void expect_symbol(std::string_view symbol);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name(std::string_view what);

  [[noreturn]] void fail(std::string_view what) const { fail_at(line(), what); }
  [[noreturn]] void fail_at(int line, std::string_view what) const;
  /// Returns the next token for messages: "'x'" or "the end of the tag".
  std::string here() const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  std::string_view name_;
};

}  // namespace hearth::text::jinja
