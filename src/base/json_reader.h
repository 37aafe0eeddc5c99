#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth {

/// How deep objects and lists in JSON from a file may nest.
constexpr int kMaxJsonDepth = 64;

/// Goes through JSON text in UTF-8 (RFC 8259) value by value and builds nothing: one pass, memory for one
/// string at a time. Every method reads the value that comes next, or throws JsonFault where another one
/// comes or the text is no JSON.
///
///   reader.read_object([&](const std::string& key) { key == "size" ? read_size(reader) : reader.skip(); });
///   reader.expect_end();
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  /// The first character of the value that comes next: one of {["tfn, a digit or -; \0 at the end of the
  /// text.
  char peek();
  /// How many bytes of the text have been read.
  size_t at() const { return at_; }
  /// The nesting of objects and arrays that are being read.
  int depth() const { return depth_; }

  /// Calls member(std::string key) for each member in order; it has to read or skip the value.
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
  /// Calls element() for each element in order; it has to read or skip it.
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
  /// The digits of a number as they stand in the text.
  std::string_view read_number();
  /// One of true, false and null.
  std::string_view read_word();
  /// Goes past a value of any kind and depth; it has to be JSON.
  void skip();
  /// Nothing but blanks may be left.
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
  /// The character at hand, \0 at the end: JSON has none outside of strings.
  char here() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// Why a text cannot be read: a sentence that starts with "expected".
struct JsonFault {
  std::string sentence;
};

}  // namespace hearth
