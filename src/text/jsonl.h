#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/function_ref.h"
#include "text/faults.h"
#include "text/jinja.h"

namespace hearth::text {

/// Part of a .txt file that is one document.
enum class TextUnit {
  file,       ///< the full file
  paragraph,  ///< lines between empty lines
  line
};

/// A record of a data file: its text, and its line in the file.
struct Entry {
  int64_t line = 0;  ///< line of its first byte, counted from 1
  std::string_view text;
  /// True if the document continues in the next entry: a long .txt file is read in pieces that end at a line
  /// end.
  bool continues = false;
};

/// A memory-mapped file of training data: .txt, JSON Lines, or one JSON array of objects. The latter is
/// recognized by "[" as the first non-blank byte.
class DataFile {
 public:
  /// Format of the file, detected from its extension and first non-blank byte.
  enum class Kind { text, lines, array };
  /// Approximate size of the pieces of a .txt file.
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  /// Maps the file. Throws a UserError naming the path if it cannot be read or is empty.
  explicit DataFile(const fs::path& path, TextUnit unit = TextUnit::file);

  /// Calls visit(entry) for each record in order. Adds each RecordError that visit() throws, and an error for
  /// an unterminated record, to `faults`, and continues with the next record. Does not copy the file to
  /// memory.
  void for_each(FunctionRef<void(const Entry&)> visit, Faults& faults) const;

  Kind kind() const { return kind_; }
  TextUnit unit() const { return unit_; }
  const fs::path& path() const { return path_; }
  /// Bytes of the mapped file; valid as long as this object.
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  fs::path path_;
  MappedFile file_;
  TextUnit unit_;
  Kind kind_ = Kind::lines;
};

/// Parses JSON; values that cannot be represented become discarded values (base/json.h). Throws a RecordError
/// if the text is not JSON.
Json parse_json(std::string_view text);
/// Parses the JSON object in a record. Throws a RecordError if it is not an object.
Json parse_record(std::string_view text);

}  // namespace hearth::text
