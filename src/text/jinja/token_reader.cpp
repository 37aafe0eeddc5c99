#include "text/jinja/token_reader.h"

#include "base/error.h"

namespace hearth::text::jinja {

bool TokenReader::is_symbol(std::string_view symbol, size_t ahead) const {
  return peek(ahead).kind == TokenKind::symbol && peek(ahead).text == symbol;
}

bool TokenReader::is_word(std::string_view word, size_t ahead) const {
  return peek(ahead).kind == TokenKind::name && peek(ahead).text == word;
}

bool TokenReader::take_symbol(std::string_view symbol) {
  const bool found = is_symbol(symbol);
  if (found) take();
  return found;
}

bool TokenReader::take_word(std::string_view word) {
  const bool found = is_word(word);
  if (found) take();
  return found;
}

void TokenReader::expect_symbol(std::string_view symbol) {
  if (!take_symbol(symbol)) fail(fmt::format("expected '{}', got {}", symbol, here()));
}

void TokenReader::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) fail(fmt::format("expected {}, got {}", what, here()));
  take();
}

std::string TokenReader::expect_name(std::string_view what) {
  if (peek().kind != TokenKind::name) fail(fmt::format("expected {}, got {}", what, here()));
  return take().text;
}

void TokenReader::fail_at(int line, std::string_view what) const {
  user_error("{}:{}: {}", name_, line, what);
}

std::string TokenReader::here() const {
  switch (peek().kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::block_end:
    case TokenKind::variable_end:
      return "the end of the tag";
    default:
      return "'" + peek().text + "'";
  }
}

}  // namespace hearth::text::jinja
