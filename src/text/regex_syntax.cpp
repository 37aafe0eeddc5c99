#include "text/regex_syntax.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace hearth::text {
namespace {

constexpr std::string_view kSpace =
    R"(\t-\r\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x00-\x08\x0E-\x1F!-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E})"
    R"(\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";
/// Superscripts and fractions of Latin-1, which Oniguruma's \w includes, but only outside of character
/// classes.
constexpr std::string_view kLatinNumbers = R"(\xB2\xB3\xB9\xBC-\xBE)";

bool is_category(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu",  "M",
       "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf",  "Pi",
       "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "Any", "Alphabetic"});
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translation {
 public:
  Translation(std::string_view pattern, std::string_view where) : pattern_(pattern), where_(where) {}

  std::string take() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    user_error("{}: {} at byte {} of the regular expression '{}' is not supported; try another tokenizer",
               where_, what, at_, pattern_.substr(0, 80));
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  /// Copies a character to the output.
  void copy() {
    const size_t bytes = first_character(pattern_.substr(at_)).bytes;
    out_.append(pattern_, at_, bytes);
    at_ += bytes;
  }

  void step() {
    const char c = peek();
    if (c == ')') {
      if (groups_.empty()) refuse("an unmatched ')'");
      atom_ = groups_.back();
      groups_.pop_back();
      return copy();
    }
    if (c == '{') return interval();
    if (c == '*' || c == '+' || c == '?') return copy();
    atom_ = out_.size();
    if (c == '\\') return escape();
    if (c == '[') return character_class();
    if (c == '(') return group();
    copy();
  }

  /// Translates an interval quantifier by Oniguruma's rules: X{1,3}+ repeats X{1,3} any number of times,
  /// X{,3} is X{0,3}, and X{2}? is X{2} or nothing.
  void interval() {
    size_t end = at_ + 1;
    const auto number = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && is_digit(pattern_[end])) ++end;
      return pattern_.substr(begin, end - begin);
    };
    const std::string_view min_count = number();
    const bool range = end < pattern_.size() && pattern_[end] == ',';
    if (range) ++end;
    const std::string_view max_count = range ? number() : min_count;
    if (end >= pattern_.size() || pattern_[end] != '}' || (min_count.empty() && max_count.empty())) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = end + 1;
    out_ += fmt::format("{{{}{}{}}}", min_count.empty() ? "0" : min_count, range ? "," : "",
                        range ? max_count : "");
    if (peek() == '+' || (peek() == '?' && !range)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
    }
  }

  void group() {
    groups_.push_back(out_.size());
    const bool first = at_ == 0;
    if (peek(1) == '*') refuse("'(*'");
    if (peek(1) != '?') return copy();
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"}) {
      if (!pattern_.substr(at_).starts_with(known)) continue;
      out_ += known;
      at_ += known.size();
      return;
    }
    options(first);
  }

  /// Translates option groups, (?i:...) and (?m:...), where m lets the dot match a newline. (?i) for the rest
  /// of the pattern is allowed only at its start.
  void options(bool first) {
    std::string made = "(?";
    size_t end = at_ + 2;
    for (; end < pattern_.size() && (pattern_[end] == 'i' || pattern_[end] == 'm' || pattern_[end] == '-');
         ++end) {
      made += pattern_[end] == 'm' ? 's' : pattern_[end];
    }
    const char last = end < pattern_.size() ? pattern_[end] : '\0';
    if (last != ':' && !(last == ')' && first))
      refuse(fmt::format("'{}'", pattern_.substr(at_, end + 1 - at_)));
    out_ += made + last;
    at_ = end + 1;
    if (last == ')') groups_.pop_back();
  }

  void character_class() {
    copy();
    if (peek() == '^') copy();
    if (peek() == ']') {
      out_ += '\\';
      copy();
    }
    while (at_ < pattern_.size() && peek() != ']') {
      if (peek() == '[') refuse("a class within a class");
      if (peek() == '&' && peek(1) == '&') refuse("'&&' in a class");
      const bool ranges = peek() == '-' && !out_.ends_with('[') && !out_.ends_with("[^") && peek(1) != ']';
      if (ranges && peek(1) == '\\' && is_set(peek(2))) refuse("a range that ends in a class");
      if (peek() != '\\') {
        copy();
        continue;
      }
      const bool set = is_set(peek(1));
      escape_in_class();
      if (set && peek() == '-' && peek(1) != ']') refuse("a range that begins with a character class");
    }
    if (at_ == pattern_.size()) refuse("a character class '[' without its closing ']'");
    copy();
  }
  static bool is_set(char c) {
    return c != '\0' && std::string_view("wWsSdDhHpP").find(c) != std::string_view::npos;
  }

  void escape() {
    const char c = peek(1);
    const std::string word = fmt::format("[{}{}]", kOnigurumaWord, kLatinNumbers);
    const std::string no_word = fmt::format("[^{}{}]", kOnigurumaWord, kLatinNumbers);
    const auto put = [&](const std::string& text) {
      out_ += text;
      at_ += 2;
    };
    if (c == 'w') return put(word);
    if (c == 'W') return put(no_word);
    if (c == 's') return put(fmt::format("[{}]", kSpace));
    if (c == 'S') return put(fmt::format("[^{}]", kSpace));
    if (c == 'h') return put("[0-9A-Fa-f]");
    if (c == 'H') return put("[^0-9A-Fa-f]");
    if (c == 'b') return put(fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word));
    if (c == 'B') return put(fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
    if (c == 'A' || c == 'z' || c == 'Z') return put(std::string("\\") + c);
    if (c >= '1' && c <= '9' && !is_digit(peek(2))) return put(std::string("\\") + c);
    common_escape();
  }

  void escape_in_class() {
    const char c = peek(1);
    const auto put = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
    };
    if (c == 'w') return put(kOnigurumaWord);
    if (c == 's') return put(kSpace);
    if (c == 'S') return put(kNoSpace);
    if (c == 'h') return put("0-9A-Fa-f");
    if (c == 'H') return put(R"(\x00-/:-@G-`g-\x{10FFFF})");
    if (c == 'b') return put(R"(\x08)");
    common_escape();
  }

  void common_escape() {
    const char c = peek(1);
    const auto put = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
    };
    if (c == 'd') return put(R"(\p{Nd})");
    if (c == 'D') return put(R"(\P{Nd})");
    if (c == 'v') return put(R"(\x0B)");
    if (c == '0' && !is_digit(peek(2))) return put(R"(\x00)");
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return code_point();
    const bool known = c != '\0' && std::string_view("trnfae").find(c) != std::string_view::npos;
    if (known) return put(pattern_.substr(at_, 2));
    if (c == '\0' || is_letter(c) || is_digit(c)) refuse(fmt::format("'{}'", pattern_.substr(at_, 2)));
    if (static_cast<uint8_t>(c) < 0x80) out_ += '\\';
    ++at_;
    copy();
  }

  /// Translates \p{NAME}. A NAME that is not a category is a script; it gets the prefix "sc:", without which
  /// PCRE2 would include script extensions.
  void property() {
    const size_t end = pattern_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos) refuse("\\p without braces");
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    const bool inverted = name.starts_with('^');
    if (inverted) name.remove_prefix(1);
    const auto part_of_name = [](char c) { return is_letter(c) || is_digit(c) || c == '_'; };
    if (name.empty() || !std::all_of(name.begin(), name.end(), part_of_name)) refuse("an unknown property");
    out_ += fmt::format("\\{}{{{}{}}}", inverted == (peek(1) == 'p') ? 'P' : 'p',
                        is_category(name) ? "" : "sc:", name);
    at_ = end + 1;
  }

  /// Translates the code points \x0A, \x{4E00} and \u4E00. Rejects \x80 to \xFF, which mean bytes.
  void code_point() {
    const bool braces = peek(1) == 'x' && peek(2) == '{';
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t max_count = braces ? 8 : peek(1) == 'u' ? 4 : 2;
    size_t end = begin;
    while (end < pattern_.size() && end - begin < max_count && is_hex(pattern_[end])) ++end;
    const std::string_view digits = pattern_.substr(begin, end - begin);
    const bool whole = braces ? end < pattern_.size() && pattern_[end] == '}' : digits.size() == max_count;
    if (digits.empty() || !whole) refuse("an incomplete code point");
    if (max_count == 2 && digits[0] > '7') refuse("a byte beyond ASCII");
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ = end + (braces ? 1 : 0);
  }

  std::string_view pattern_;
  std::string_view where_;
  std::string out_;
  size_t at_ = 0;
  /// Offset in out_ of the last atom (character, class or group), which a following quantifier repeats.
  size_t atom_ = 0;
  std::vector<size_t> groups_;
};

}  // namespace

std::string pcre_of_oniguruma(std::string_view pattern, std::string_view where) {
  return Translation(pattern, where).take();
}

}  // namespace hearth::text
