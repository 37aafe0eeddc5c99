#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

constexpr std::string_view kBlank = " \t\n\r\f\v";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

/// Converts all line ends to \n and removes one \n at the end.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view name)
      : source_(normalized(source)), rest_(source_), name_(name) {}

  std::vector<Token> run() {
    while (!rest_.empty()) read_text_and_tag();
    add(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const { user_error("{}:{}: {}", name_, line_, what); }

  void add(TokenKind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }

  void skip(size_t count) {
    line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(count), '\n'));
    if (count > 0) at_line_start_ = rest_[count - 1] == '\n';
    rest_.remove_prefix(count);
  }
  void skip_blank() { skip(std::min(rest_.find_first_not_of(kBlank), rest_.size())); }
  bool takes(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    skip(word.size());
    return true;
  }

  size_t find_tag() const {
    for (size_t i = rest_.find('{'); i != rest_.npos; i = rest_.find('{', i + 1)) {
      if (i + 1 < rest_.size() && std::string_view("{%#").find(rest_[i + 1]) != std::string_view::npos)
        return i;
    }
    return rest_.size();
  }

  /// Adds a token with the text before the tag at `tag_at`, and skips the tag's first characters. Removes
  /// white space at the end of the text as the tag's sign (- or +) and kind require.
  void take_text_before(size_t tag_at) {
    std::string_view text = rest_.substr(0, tag_at);
    if (tag_at < rest_.size()) {
      const char kind = rest_[tag_at + 1];
      const char sign = tag_at + 2 < rest_.size() ? rest_[tag_at + 2] : ' ';
      if (sign == '-') {
        text = text.substr(0, text.find_last_not_of(kBlank) + 1);
      } else if (sign != '+' && kind != '{') {
        text = without_indent(text);
      }
      if (!text.empty()) add(TokenKind::text, text);
      skip(tag_at + (sign == '-' || sign == '+' ? 3 : 2));
    } else {
      add(TokenKind::text, text);
      skip(tag_at);
    }
  }

  std::string_view without_indent(std::string_view text) const {
    const size_t line = text.rfind('\n') + 1;
    if (line == 0 && !at_line_start_) return text;
    return text.find_first_not_of(kBlank, line) == text.npos ? text.substr(0, line) : text;
  }

  void read_text_and_tag() {
    const size_t tag_at = find_tag();
    const char kind = tag_at < rest_.size() ? rest_[tag_at + 1] : ' ';
    take_text_before(tag_at);
    if (kind == '#') read_comment();
    if (kind == '{') read_code(TokenKind::variable_begin, TokenKind::variable_end, "}}");
    if (kind == '%' && !read_raw()) read_code(TokenKind::block_begin, TokenKind::block_end, "%}");
  }

  void read_comment() {
    const size_t end = rest_.find("#}");
    if (end == rest_.npos) fail("expected '#}' after '{#'");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    skip(end + 2);
    after_block(sign);
  }

  /// Skips white space after a tag other than {{ }}: all of it if the tag's sign is -, a newline if there is
  /// no sign.
  void after_block(char sign) {
    if (sign == '-') skip_blank();
    if (sign != '-' && sign != '+') takes("\n");
  }

  /// Reads a {% raw %} block to its end. Returns false if the tag is not {% raw %}.
  bool read_raw() {
    size_t word = rest_.find_first_not_of(kBlank);
    if (word == rest_.npos || !rest_.substr(word).starts_with("raw")) return false;
    size_t close = rest_.find_first_not_of(kBlank, word + 3);
    if (close == rest_.npos ||
        !(rest_.substr(close).starts_with("%}") || rest_.substr(close).starts_with("-%}")))
      return false;
    const bool strips = rest_[close] == '-';
    skip(close + (strips ? 3 : 2));
    if (strips) skip_blank();
    for (size_t from = 0;; from += 2) {
      from = rest_.find("{%", from);
      if (from == rest_.npos) fail("expected {% endraw %} after {% raw %}");
      if (end_raw_at(from)) return true;
    }
  }

  bool end_raw_at(size_t tag_at) {
    std::string_view tag = rest_.substr(tag_at + 2);
    if (!tag.empty() && (tag[0] == '-' || tag[0] == '+')) tag.remove_prefix(1);
    tag = strip(tag, kBlank, Side::left);
    if (!tag.starts_with("endraw")) return false;
    tag = strip(tag.substr(6), kBlank, Side::left);
    const char sign = tag.empty() ? ' ' : tag[0];
    if (sign == '-' || sign == '+') tag.remove_prefix(1);
    if (!tag.starts_with("%}")) return false;
    const size_t num_after = tag.size() - 2;
    take_text_before(tag_at);
    skip(rest_.size() - num_after);
    after_block(sign);
    return true;
  }

  void read_code(TokenKind begin, TokenKind end, std::string_view closing) {
    add(begin, "");
    std::string open;
    while (true) {
      skip_blank();
      if (rest_.empty()) fail(closing == "}}" ? "expected '}}' after '{{'" : "expected '%}' after '{%'");
      if (open.empty() && takes_end(closing)) break;
      read_token(open);
    }
    add(end, "");
  }

  bool takes_end(std::string_view closing) {
    const char sign = rest_[0];
    const bool is_signed = sign == '-' || (sign == '+' && closing == "%}");
    if (!rest_.substr(is_signed ? 1 : 0).starts_with(closing)) return false;
    skip(closing.size() + (is_signed ? 1 : 0));
    if (closing == "%}") {
      after_block(sign);
    } else if (sign == '-') {
      skip_blank();
    }
    return true;
  }

  void read_token(std::string& open) {
    const char c = rest_[0];
    if (is_name_start(c)) {
      read_name();
    } else if (is_digit(c)) {
      read_number();
    } else if (c == '"' || c == '\'') {
      read_string(c);
    } else {
      read_symbol(open);
    }
  }

  void read_name() {
    size_t size = 1;
    while (size < rest_.size() && is_name_part(rest_[size])) ++size;
    add(TokenKind::name, rest_.substr(0, size));
    skip(size);
  }

  bool digit_at(size_t at) const { return at < rest_.size() && is_digit(rest_[at]); }

  /// Returns the number of characters from `from` on that are digits or single underscores between digits.
  size_t num_digits(size_t from) const {
    size_t to = from;
    while (digit_at(to) || (to > from && digit_at(to - 1) && rest_.substr(to, 1) == "_" && digit_at(to + 1)))
      ++to;
    return to - from;
  }

  void read_number() {
    size_t size = num_digits(0);
    bool real = false;
    if (size < rest_.size() && rest_[size] == '.' && num_digits(size + 1) > 0) {
      size += 1 + num_digits(size + 1);
      real = true;
    }
    if (size < rest_.size() && (rest_[size] == 'e' || rest_[size] == 'E')) {
      const size_t sign =
          size + 1 < rest_.size() && (rest_[size + 1] == '-' || rest_[size + 1] == '+') ? 1 : 0;
      if (const size_t digits = num_digits(size + 1 + sign); digits > 0) {
        size += 1 + sign + digits;
        real = true;
      }
    }
    if (size < rest_.size() && is_name_part(rest_[size]))
      fail("a number that is not decimal is not supported; write it with the digits 0 to 9");
    std::string digits(rest_.substr(0, size));
    std::erase(digits, '_');
    add(real ? TokenKind::real : TokenKind::integer, digits);
    skip(size);
  }

  void read_string(char quote) {
    size_t end = 1;
    while (end < rest_.size() && rest_[end] != quote) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("expected a closing quote");
    add(TokenKind::string, unescaped(rest_.substr(1, end - 1)));
    skip(end + 1);
  }

  std::string unescaped(std::string_view raw) const {
    std::string text;
    for (size_t i = 0; i < raw.size();) {
      if (raw[i] != '\\' || i + 1 == raw.size()) {
        text += raw[i++];
      } else {
        i += append_escape(text, raw.substr(i));
      }
    }
    return text;
  }

  /// Appends the character that a Python escape sequence at the start of `raw` describes. Returns the length
  /// of the sequence.
  size_t append_escape(std::string& text, std::string_view raw) const {
    constexpr std::string_view kLetters = "ntr\\'\"abfv";
    constexpr std::string_view kMeanings = "\n\t\r\\'\"\a\b\f\v";
    const char c = raw[1];
    if (const size_t known = kLetters.find(c); known != kLetters.npos) {
      text += kMeanings[known];
      return 2;
    }
    if (c == '\n') return 2;
    if (c == 'x' || c == 'u' || c == 'U')
      return append_number(text, raw, 2, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    if (c >= '0' && c <= '7') return append_number(text, raw, 1, 3, 8);
    if (c == 'N') fail("the escape \\N{...} is not supported; write the character itself");
    text += raw.substr(0, 2);
    return 2;
  }

  size_t append_number(std::string& text, std::string_view raw, size_t from, size_t most,
                       uint32_t base) const {
    uint32_t value = 0;
    size_t at = from;
    for (; at < raw.size() && at < from + most; ++at) {
      const uint32_t digit = digit_value(raw[at]);
      if (digit >= base) break;
      value = value * base + digit;
    }
    const bool whole = base == 8 || at == from + most;
    if (!whole || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
      fail("expected a valid character escape");
    append_utf8(text, value);
    return at;
  }

  static uint32_t digit_value(char c) {
    if (is_digit(c)) return static_cast<uint32_t>(c - '0');
    if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a' + 10);
    if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A' + 10);
    return 99;
  }

  void read_symbol(std::string& open) {
    static constexpr std::array<std::string_view, 24> kSymbols = {
        "//", "**", "==", "!=", "<=", ">=", "+", "-", "*", "/", "%", "~",
        "<",  ">",  "=",  "(",  ")",  "[",  "]", "{", "}", ".", ":", ","};
    const auto* found =
        std::find_if(kSymbols.begin(), kSymbols.end(), [&](auto s) { return rest_.starts_with(s); });
    const std::string_view symbol = found != kSymbols.end() ? *found : rest_[0] == '|' ? "|" : "";
    if (symbol.empty())
      fail(fmt::format("unexpected '{}' in a tag", rest_.substr(0, first_character(rest_).bytes)));
    constexpr std::string_view kOpening = "([{";
    constexpr std::string_view kClosing = ")]}";
    if (kOpening.find(symbol[0]) != kOpening.npos) open += symbol[0];
    if (const size_t kind = kClosing.find(symbol[0]); kind != kClosing.npos) {
      if (open.empty() || open.back() != kOpening[kind]) fail(fmt::format("unexpected '{}'", symbol));
      open.pop_back();
    }
    add(TokenKind::symbol, symbol);
    skip(symbol.size());
  }

  std::string source_;
  std::string_view rest_;
  std::string_view name_;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source, std::string_view name) {
  return Lexer(source, name).run();
}

}  // namespace hearth::text::jinja
