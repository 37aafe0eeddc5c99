#include "text/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/json.h"
#include "text/utf8.h"

namespace hearth::text {
namespace {

/// The text does not go on as JSON does.
struct Broken {};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// What stands for itself in a string.
bool is_plain(char c) { return static_cast<uint8_t>(c) >= 32 && c != '"' && c != '\\'; }

Json discarded() { return Json(Json::value_t::discarded); }

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Json read() {
    Json value = read_value(0);
    skip_blank();
    if (at_ < text_.size()) throw Broken();
    return value;
  }
  size_t at() const { return at_; }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_blank() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }

  bool take(char c) {
    skip_blank();
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) throw Broken();
  }

  void expect_word(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) throw Broken();
    at_ += word.size();
  }

  Json read_value(int depth) {
    skip_blank();
    switch (peek()) {
      case '{':
      case '[':
        if (depth >= kMaxJsonDepth) return skip_nested();
        return peek() == '{' ? read_object(depth + 1) : read_array(depth + 1);
      case '"':
        return read_string();
      case 't':
        expect_word("true");
        return true;
      case 'f':
        expect_word("false");
        return false;
      case 'n':
        expect_word("null");
        return nullptr;
      default:
        return read_number();
    }
  }

  Json read_array(int depth) {
    Json array = Json::array();
    expect('[');
    if (take(']')) return array;
    do {
      array.push_back(read_value(depth));
    } while (take(','));
    expect(']');
    return array;
  }

  Json read_object(int depth) {
    Json object = Json::object();
    Json::object_t::Container& members = object.get_ref<Json::object_t&>();
    std::unordered_map<std::string_view, size_t> places;
    expect('{');
    if (take('}')) return object;
    std::vector<std::pair<std::string, Json>> read;
    do {
      skip_blank();
      std::string key = read_string();
      expect(':');
      read.emplace_back(std::move(key), read_value(depth));
    } while (take(','));
    expect('}');
    for (auto& [key, value] : read) {
      const auto [place, is_new] = places.try_emplace(key, members.size());
      if (is_new) {
        members.emplace_back(key, std::move(value));
      } else {
        members[place->second].second = std::move(value);
      }
    }
    return object;
  }

  /// Goes through brackets without recursion; they have to match, and what stands in them to be JSON.
  Json skip_nested() {
    std::string open;
    do {
      skip_blank();
      if (peek() == '{' || peek() == '[') {
        open += text_[at_++];
        if (take(open.back() == '{' ? '}' : ']')) {
          open.pop_back();
        } else {
          skip_key(open);
          continue;
        }
      } else {
        read_value(kMaxJsonDepth);
      }
      while (!open.empty() && take(open.back() == '{' ? '}' : ']')) open.pop_back();
      if (open.empty()) break;
      expect(',');
      skip_key(open);
    } while (true);
    return discarded();
  }

  void skip_key(const std::string& open) {
    if (open.back() != '{') return;
    skip_blank();
    read_string();
    expect(':');
  }

  std::string read_string() {
    expect('"');
    std::string value;
    while (true) {
      size_t end = at_;
      while (end < text_.size() && is_plain(text_[end])) ++end;
      if (end == text_.size()) {
        at_ = end;
        throw Broken();
      }
      append_valid(value, text_.substr(at_, end - at_));
      at_ = end + 1;
      if (text_[end] == '"') return value;
      if (text_[end] != '\\') throw Broken();
      append_escaped(value);
    }
  }

  void append_valid(std::string& value, std::string_view run) {
    const size_t valid = valid_prefix(run);
    at_ += valid;
    if (valid < run.size()) throw Broken();
    value += run;
  }

  void append_escaped(std::string& value) {
    constexpr std::string_view kLetters = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char letter = peek();
    ++at_;
    if (letter == 'u') return append_utf8(value, read_code_point());
    const size_t known = kLetters.find(letter);
    if (known == kLetters.npos) throw Broken();
    value += kMeanings[known];
  }

  /// The four digits of an escape, or those of two that are a surrogate pair.
  char32_t read_code_point() {
    const uint32_t high = read_hex();
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || !text_.substr(std::min(at_, text_.size())).starts_with("\\u")) throw Broken();
    at_ += 2;
    const uint32_t low = read_hex();
    if (low < 0xDC00 || low > 0xDFFF) throw Broken();
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  uint32_t read_hex() {
    if (text_.size() - std::min(at_, text_.size()) < 4) throw Broken();
    uint32_t value = 0;
    const char* first = text_.data() + at_;
    if (std::from_chars(first, first + 4, value, 16).ptr != first + 4) throw Broken();
    at_ += 4;
    return value;
  }

  void take_digits() {
    if (!is_digit(peek())) throw Broken();
    while (is_digit(peek())) ++at_;
  }

  Json read_number() {
    const size_t first = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      take_digits();
    }
    const size_t end_of_integer = at_;
    if (peek() == '.') {
      ++at_;
      take_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      take_digits();
    }
    const std::string digits(text_.substr(first, at_ - first));
    return at_ == end_of_integer ? integer(digits) : real(digits);
  }

  static Json integer(const std::string& digits) {
    const char* end = digits.data() + digits.size();
    int64_t whole = 0;
    if (std::from_chars(digits.data(), end, whole).ec == std::errc()) {
      if (whole < 0) return whole;
      return digits[0] == '-' ? Json(whole) : Json(static_cast<uint64_t>(whole));
    }
    uint64_t large = 0;
    if (std::from_chars(digits.data(), end, large).ec == std::errc()) return large;
    return discarded();
  }

  static Json real(const std::string& digits) {
    const double value = std::strtod(digits.c_str(), nullptr);
    return std::isfinite(value) ? Json(value) : discarded();
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Json> read_json_text(std::string_view text, std::string& fault) {
  Reader reader(text);
  try {
    return reader.read();
  } catch (const Broken&) {
    fault = fmt::format("expected JSON in UTF-8, but it breaks at byte {} of {}",
                        std::min(reader.at() + 1, text.size()), text.size());
    return std::nullopt;
  }
}

bool is_readable(const Json& value) {
  if (value.is_discarded()) return false;
  return !value.is_structured() || std::all_of(value.begin(), value.end(), is_readable);
}

}  // namespace hearth::text
