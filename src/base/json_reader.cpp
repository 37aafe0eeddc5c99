#include "base/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/utf8.h"

namespace hearth {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// True if the character needs no escape in a string.
bool is_plain(char c) { return static_cast<uint8_t>(c) >= 32 && c != '"' && c != '\\'; }

}  // namespace

void JsonReader::refuse() const {
  throw JsonFault{fmt::format("expected JSON in UTF-8, but it breaks at byte {} of {}",
                              std::min(at_ + 1, text_.size()), text_.size())};
}

char JsonReader::peek() {
  at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size());
  return here();
}

bool JsonReader::take(char c) {
  if (peek() != c) return false;
  ++at_;
  return true;
}

void JsonReader::expect(char c) {
  if (!take(c)) refuse();
}

void JsonReader::expect_end() {
  peek();
  if (at_ < text_.size()) refuse();
}

void JsonReader::open(char bracket) {
  expect(bracket);
  if (++depth_ > kMaxJsonDepth)
    throw JsonFault{fmt::format("expected JSON nested at most {} deep", kMaxJsonDepth)};
}

std::string JsonReader::read_key() {
  std::string key = read_string();
  expect(':');
  return key;
}

std::string JsonReader::read_string() {
  expect('"');
  std::string value;
  while (true) {
    size_t end = at_;
    while (end < text_.size() && is_plain(text_[end])) ++end;
    const std::string_view run = text_.substr(at_, end - at_);
    const size_t valid = valid_prefix(run);
    at_ += valid;
    if (valid < run.size() || end == text_.size()) refuse();
    value += run;
    ++at_;
    if (text_[end] == '"') return value;
    if (text_[end] != '\\') refuse();
    append_escaped(value);
  }
}

void JsonReader::append_escaped(std::string& value) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  const char letter = here();
  ++at_;
  if (letter == 'u') return append_utf8(value, read_code_point());
  const size_t known = letter == '\0' ? kLetters.npos : kLetters.find(letter);
  if (known == kLetters.npos) refuse();
  value += kMeanings[known];
}

/// Reads the four hexadecimal digits of a \u escape, or both escapes of a surrogate pair.
char32_t JsonReader::read_code_point() {
  const uint32_t high = read_hex();
  if (high < 0xD800 || high > 0xDFFF) return high;
  if (high > 0xDBFF || !text_.substr(at_).starts_with("\\u")) refuse();
  at_ += 2;
  const uint32_t low = read_hex();
  if (low < 0xDC00 || low > 0xDFFF) refuse();
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

uint32_t JsonReader::read_hex() {
  if (text_.size() - std::min(at_, text_.size()) < 4) refuse();
  uint32_t value = 0;
  const char* first = text_.data() + at_;
  if (std::from_chars(first, first + 4, value, 16).ptr != first + 4) refuse();
  at_ += 4;
  return value;
}

void JsonReader::take_digits() {
  if (!is_digit(here())) refuse();
  while (is_digit(here())) ++at_;
}

std::string_view JsonReader::read_number() {
  peek();
  const size_t first = at_;
  if (here() == '-') ++at_;
  if (here() == '0') {
    ++at_;
  } else {
    take_digits();
  }
  if (here() == '.') {
    ++at_;
    take_digits();
  }
  if (here() == 'e' || here() == 'E') {
    ++at_;
    if (here() == '+' || here() == '-') ++at_;
    take_digits();
  }
  return text_.substr(first, at_ - first);
}

std::string_view JsonReader::read_word() {
  peek();
  for (const std::string_view word : {"true", "false", "null"}) {
    if (!text_.substr(at_).starts_with(word)) continue;
    at_ += word.size();
    return word;
  }
  refuse();
}

/// Skips a string, number or word.
void JsonReader::skip_flat() {
  const char first = peek();
  if (first == '"') {
    read_string();
  } else if (first == '-' || is_digit(first)) {
    read_number();
  } else {
    read_word();
  }
}

/// A loop instead of recursion, because the text may be nested to any depth. `in_object` has one bit per
/// level.
void JsonReader::skip() {
  std::vector<bool> in_object;
  const auto closes = [&] { return take(in_object.back() ? '}' : ']'); };
  while (true) {
    if (peek() == '{' || here() == '[') {
      in_object.push_back(text_[at_++] == '{');
      if (!closes()) {
        if (in_object.back()) read_key();
        continue;
      }
      in_object.pop_back();
    } else {
      skip_flat();
    }
    while (!in_object.empty() && closes()) in_object.pop_back();
    if (in_object.empty()) return;
    expect(',');
    if (in_object.back()) read_key();
  }
}

}  // namespace hearth
