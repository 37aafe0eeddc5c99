#pragma once

#include <string>
#include <string_view>

#include "base/json_reader.h"

namespace hearth::data {

/// Reads a label file in JSON value by value. Every fault is a UserError that names file, object and byte:
/// "FILE: expected a number for x at annotation 7 (byte 1234)".
class LabelJson {
 public:
  LabelJson(std::string_view text, std::string_view name);

  /// Calls read() for the file's one value; what follows it is a fault.
  template <typename Read>
  void read_file(Read read) {
    try {
      read();
      json_.expect_end();
    } catch (const JsonFault& fault) {
      refuse_text(fault);
    }
  }
  /// Calls element() for each element of a list, of which messages speak as `what` and its number.
  template <typename Element>
  void read_list(std::string_view what, Element element) {
    if (json_.peek() != '[') refuse("a list");
    what_ = what;
    number_ = 0;
    json_.read_array([&] {
      ++number_;
      element();
    });
  }
  /// Calls element() for each element of a list within an object of that.
  template <typename Element>
  void read_inner_list(std::string_view key, Element element) {
    if (json_.peek() != '[') refuse_value("a list", key);
    json_.read_array(element);
  }
  /// Calls member(key) for each member of an object; it has to read or skip the value.
  template <typename Member>
  void read_object(Member member) {
    if (json_.peek() != '{') refuse("an object");
    json_.read_object(member);
  }

  char peek() { return json_.peek(); }
  bool at_number();
  void skip() { json_.skip(); }
  double read_real(std::string_view key);
  /// Exactly, also where it is written as 12.0.
  int64_t read_integer(std::string_view key);
  /// A number, or true and false.
  bool read_flag(std::string_view key);
  std::string read_text(std::string_view key);

  /// Returns the reader's position. The value that comes next can be skipped and read later, if it turns out
  /// to be needed.
  JsonReader mark() const { return json_; }
  /// Calls read() at that mark and returns to where the reader was.
  template <typename Read>
  void read_at(const JsonReader& mark, Read read) {
    const JsonReader here = json_;
    json_ = mark;
    read();
    json_ = here;
  }

  /// Number of the object being read, from 1, and the byte that comes next, from 1.
  int64_t number() const { return number_; }
  size_t byte() const { return json_.at() + 1; }
  /// "FILE: annotation 7 (byte 1234)".
  std::string where() const { return where(what_, number_, byte()); }
  std::string where(std::string_view what, int64_t number, size_t byte) const;
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  [[noreturn]] void refuse_value(std::string_view expected, std::string_view key) const;
  [[noreturn]] void refuse_text(const JsonFault& fault) const;

  JsonReader json_;
  std::string_view name_;
  std::string_view what_ = "the start, object";
  int64_t number_ = 0;
};

/// Text without a byte order mark at its start.
std::string_view without_bom(std::string_view text);

}  // namespace hearth::data
