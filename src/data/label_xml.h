#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct XML_ParserStruct;

namespace hearth::data {

/// Goes through a label file in XML element by element. Faults are UserErrors "FILE:LINE: expected ...".
/// Nesting and the texts of elements are bounded, and documents that declare entities are refused.
class LabelXml {
 public:
  /// `root`: the element that has to be the outermost one; `what`: what it holds, for messages.
  LabelXml(std::string_view name, std::string_view root, std::string_view what);
  virtual ~LabelXml();
  LabelXml(const LabelXml&) = delete;
  LabelXml& operator=(const LabelXml&) = delete;

 protected:
  void parse(std::string_view text);

  /// Called where an element starts, with its attributes (names and values in turn, null at the end), and
  /// where it ends, with its text without blanks around it. path() is the element's in both.
  virtual void start(std::string_view element, const char** attributes) = 0;
  virtual void end(std::string_view text) = 0;

  /// The elements that are open: "/annotation/object/name".
  std::string_view path() const { return path_; }
  int64_t line() const;
  std::string where() const;
  /// Stops the parser; parse() throws this fault. Handlers go on to their end.
  void refuse_at(int64_t line, std::string_view expected);
  void refuse(std::string_view expected) { refuse_at(line(), expected); }
  /// The number that a text is, or 0 and a fault.
  double read_number(std::string_view text);
  int64_t read_side(std::string_view text);

 private:
  struct Handlers;
  void open(std::string_view element, const char** attributes);
  void close();

  std::string_view name_, root_, what_;
  std::unique_ptr<XML_ParserStruct, void (*)(XML_ParserStruct*)> expat_;
  std::string fault_;
  std::string path_, text_;
  std::vector<size_t> lengths_;  ///< of path_, before each element that is open
};

/// The value of an attribute.
std::optional<std::string_view> attribute(const char** attributes, std::string_view name);

}  // namespace hearth::data
