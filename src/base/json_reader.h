#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

/// Maximum nesting of objects and arrays in JSON from a file.
constexpr int kMaxJsonDepth = 64;

/// A pull parser for JSON text in UTF-8 (RFC 8259): reads value by value in one pass and stores at most one
/// string. Each method reads the next value, or throws JsonFault if the next value is of another type or the
/// text is invalid.
///
///   reader.read_object([&](const std::string& key) { key == "size" ? read_size(reader) : reader.skip(); });
///   reader.expect_end();
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// Returns the first character of the next value, without reading it: one of {["tfn, a digit or -; \0 at
  /// the end of the text.
  char peek();
  /// Number of bytes read so far.
  size_t at() const { return at_; }
  /// Nesting depth of the objects and arrays being read.
  int depth() const { return depth_; }

  /// Calls member(std::string key) for each member in order; the callback must read or skip the value.
  template <typename Member>
  void read_object(Member member) {
    open('{');
    if (!take('}')) {
      do {
        std::string key = read_key();
        member(std::move(key));
      } while (take(','));
      expect('}');
    }
    --depth_;
  }
  /// Calls element() for each element in order; the callback must read or skip it.
  template <typename Element>
  void read_array(Element element) {
    open('[');
    if (!take(']')) {
      do {
        element();
      } while (take(','));
      expect(']');
    }
    --depth_;
  }
  std::string read_string();
  /// Reads a number and returns its text.
  std::string_view read_number();
  /// Reads true, false or null and returns the word.
  std::string_view read_word();
  /// Skips a value of any type and depth; it must be valid JSON.
  void skip();
  /// Throws JsonFault unless only whitespace is left.
  void expect_end();

 private:
  [[noreturn]] void refuse() const;
  void open(char bracket);
  bool take(char c);
  void expect(char c);
  std::string read_key();
  void skip_flat();
  void append_escaped(std::string& value);
  char32_t read_code_point();
  uint32_t read_hex();
  void take_digits();
  /// Returns the current character, or \0 at the end of the text. JSON contains no \0 outside of strings.
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// Reason why a text cannot be parsed: a sentence that starts with "expected".
struct JsonFault {
  std::string sentence;
};

}  // namespace hearth
