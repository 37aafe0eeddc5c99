#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json_reader.h"

namespace hearth::data {

/// A reader for label files in JSON, value by value. Every error is a UserError with file, object and byte:
/// "FILE: expected a number for x at annotation 7 (byte 1234)".
class LabelJson {
 public:
  LabelJson(std::string_view text, std::string_view name);

  /// Calls read() for the file's only value. Throws a UserError if anything follows it.
  template <typename Read>
  void read_file(Read read) {
    try {
      read();
      json_.expect_end();
    } catch (const JsonFault& fault) {
      refuse_text(fault);
    }
  }
  /// Calls element() for each element of a list. Error messages call an element `what` and its number, such
  /// as "annotation 7".
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
  /// Calls read() for the next value. If `fault` is not null and read() throws a UserError, stores the
  /// message in `fault`, calls name() on the same value to read its name or id, and skips the value.
  template <typename Read, typename Name>
  void read_record(std::string* fault, Read read, Name name) {
    const JsonReader start = json_;
    try {
      return read();
    } catch (const UserError& error) {
      if (fault == nullptr) throw;
      *fault = error.what();
    }
    json_ = start;
    try {
      name();
    } catch (const UserError&) {  // The record has no readable name.
    }
    json_ = start;
    json_.skip();
  }
  /// Calls element() for each element of the list that is the value of `key` in the current element.
  template <typename Element>
  void read_inner_list(std::string_view key, Element element) {
    if (json_.peek() != '[') refuse_value("a list", key);
    json_.read_array(element);
  }
  /// Calls member(key) for each member of an object. member() must read or skip the value.
  template <typename Member>
  void read_object(Member member) {
    if (json_.peek() != '{') refuse("an object");
    json_.read_object(member);
  }

  char peek() { return json_.peek(); }
  bool at_number();
  void skip() { json_.skip(); }
  double read_real(std::string_view key);
  /// Reads an integer, which may be written as 12.0. Throws a UserError if it has a fraction.
  int64_t read_integer(std::string_view key);
  /// Reads true, false or an integer (0 is false, others are true).
  bool read_flag(std::string_view key);
  std::string read_text(std::string_view key);

  /// Returns the reader's position: the next value can then be skipped now and read later with read_at().
  JsonReader mark() const { return json_; }
  /// Calls read() at a position returned by mark(), then restores the current position.
  template <typename Read>
  void read_at(const JsonReader& mark, Read read) {
    const JsonReader here = json_;
    json_ = mark;
    read();
    json_ = here;
  }

  /// Number of the current list element, and position of the next byte; both count from 1.
  int64_t number() const { return number_; }
  size_t byte() const { return json_.at() + 1; }
  /// Position for messages: "FILE: annotation 7 (byte 1234)".
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

}  // namespace hearth::data
