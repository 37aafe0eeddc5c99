#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct XML_ParserStruct;

namespace hearth::data {

/// Parses a label file in XML element by element. Errors are UserErrors "FILE:LINE: ...". Nesting
/// depth and text length are limited, and documents that declare entities are refused.
class LabelXml {
 public:
  /// `root`: name of the required root element; `what`: its content, for messages.
  LabelXml(std::string_view name, std::string_view root, std::string_view what);
  virtual ~LabelXml();
  LabelXml(const LabelXml&) = delete;
  LabelXml& operator=(const LabelXml&) = delete;

 protected:
  void parse(std::string_view text);

  /// Called at the start of an element, with its attributes (name, value, name, value, ..., null), and at its
  /// end, with its trimmed text. path() includes the element in both calls.
  virtual void start(std::string_view element, const char** attributes) = 0;
  virtual void end(std::string_view text) = 0;

  /// Path of the current element from the root, such as "/annotation/object/name".
  std::string_view path() const { return path_; }
  int64_t line() const;
  std::string where() const;
  /// Lets refuse() store its first error in `fault` and continue parsing. If `fault` is null, refuse() stops
  /// the parser.
  void keep_faults(std::string* fault) { kept_fault_ = fault; }
  /// Records an error. Without keep_faults() it stops the parser, and parse() throws the error as a
  /// UserError. Does not throw itself, because exceptions must not cross expat, which is C code.
  void refuse_at(int64_t line, std::string_view what);
  void refuse(std::string_view what) { refuse_at(line(), what); }
  /// Parses a number; calls refuse() and returns 0 if the text is not a number.
  double read_number(std::string_view text);
  int64_t read_side(std::string_view text);

 private:
  struct Handlers;
  void stop(int64_t line, std::string_view what);
  void open(std::string_view element, const char** attributes);
  void close();

  std::string_view name_, root_, what_;
  std::unique_ptr<XML_ParserStruct, void (*)(XML_ParserStruct*)> expat_;
  std::string fault_;
  std::string* kept_fault_ = nullptr;
  std::string path_, text_;
  std::vector<size_t> lengths_;  ///< length of path_ before each open element
};

/// Returns the value of an attribute; nullopt if the element does not have it.
std::optional<std::string_view> attribute(const char** attributes, std::string_view name);

}  // namespace hearth::data
