#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/function_ref.h"
#include "text/faults.h"
#include "text/jinja.h"

namespace hearth::text {

/// What one document of a .txt file is.
enum class TextUnit {
  file,       ///< all of it
  paragraph,  ///< what stands between empty lines
  line
};

/// A record where it stands in the mapped file.
struct Entry {
  int64_t line = 0;  ///< of its first byte, from 1
  std::string_view text;
  /// The document continues in the next entry: a .txt file comes in pieces that end at a line's end.
  bool continues = false;
};

/// A memory-mapped file of training data: .txt, one JSON object per line, or one JSON array of objects
/// (told apart by the first byte that is not blank).
class DataFile {
 public:
  enum class Kind { text, lines, array };
  /// About how long the pieces of a .txt file are.
  static constexpr size_t kPieceBytes = size_t{1} << 20;

  /// UserError naming the path when it cannot be read or is empty.
  explicit DataFile(const fs::path& path, TextUnit unit = TextUnit::file);

  /// Visits every record in order. A RecordError of the visitor, or a record that is not closed, goes into
  /// `faults` as "FILE:LINE: what", and the next one follows. Holds nothing of the file in memory.
  void for_each(FunctionRef<void(const Entry&)> visit, Faults& faults) const;

  Kind kind() const { return kind_; }
  TextUnit unit() const { return unit_; }
  const fs::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }

 private:
  fs::path path_;
  MappedFile file_;
  TextUnit unit_;
  Kind kind_ = Kind::lines;
};

/// The value of JSON text, what cannot be read discarded (base/json.h). RecordError where it holds none.
Json parse_json(std::string_view text);
/// The JSON object in a record. RecordError when it is none.
Json parse_record(std::string_view text);

}  // namespace hearth::text
