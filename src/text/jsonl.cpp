#include "text/jsonl.h"

#include <algorithm>

#include "base/foreign.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::text {
namespace {

using Visit = FunctionRef<void(const Entry&)>;

std::string_view text_of(const MappedFile& file) {
  return without_bom({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

int64_t num_lines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

/// Returns the offset after the closing quote of the JSON string that starts at offset `at`.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

/// Returns the end of the JSON value that starts at offset 0, found by matching brackets; npos if it is not
/// terminated. Values other than objects and arrays end before a comma or bracket.
size_t end_of_value(std::string_view text) {
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_string(text, at);
      if (at == text.size() && text.back() != '"') return text.npos;
      continue;
    }
    if (depth == 0 && (c == ',' || c == ']' || c == '}')) return at;
    if (c == '{' || c == '[') ++depth;
    ++at;
    if ((c == '}' || c == ']') && --depth == 0) return at;
  }
  return depth == 0 ? text.size() : text.npos;
}

/// Calls the visitor for each record, and adds the RecordErrors that it throws to `faults`.
class RecordVisitor {
 public:
  RecordVisitor(std::string path, Visit visit, Faults& faults)
      : path_(std::move(path)), visit_(visit), faults_(faults) {}

  void deliver(const Entry& entry) {
    try {
      visit_(entry);
    } catch (const RecordError& error) {
      faults_.add(path_, entry.line, error.kind(), error.what());
    }
  }
  void refuse(int64_t line, std::string_view sentence) { faults_.add(path_, line, "broken JSON", sentence); }

 private:
  std::string path_;
  Visit visit_;
  Faults& faults_;
};

void visit_lines(std::string_view text, RecordVisitor& out) {
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::string_view record = trimmed(take_line(text));
    if (!record.empty()) out.deliver({.line = line, .text = record});
  }
}

/// Reads the elements of a JSON array one by one.
class ArrayReader {
 public:
  ArrayReader(std::string_view text, RecordVisitor& out) : rest_(text), out_(out) {}

  void run() {
    skip_blank();
    skip(1);
    skip_blank();
    while (!rest_.empty() && rest_[0] != ']') {
      if (!read_element()) return;
    }
    if (rest_.empty())
      return out_.refuse(line_, "expected ']' at the end of the array, got the end of the file");
    skip(1);
    skip_blank();
    if (!rest_.empty()) out_.refuse(line_, "expected nothing after the array");
  }

 private:
  bool read_element() {
    const size_t end = end_of_value(rest_);
    if (end == rest_.npos || end == 0) {
      out_.refuse(line_, end == 0 ? "expected a record of the array"
                                  : "the record is not terminated before the end of the file");
      return false;
    }
    out_.deliver({.line = line_, .text = trimmed(rest_.substr(0, end))});
    skip(end);
    skip_blank();
    if (!rest_.empty() && rest_[0] == ',') {
      skip(1);
      skip_blank();
    } else if (!rest_.empty() && rest_[0] != ']') {
      out_.refuse(line_, "expected ',' or ']' after a record of the array");
      return false;
    }
    return true;
  }

  void skip(size_t count) {
    line_ += num_lines(rest_.substr(0, count));
    rest_.remove_prefix(count);
  }
  void skip_blank() { skip(std::min(rest_.find_first_not_of(kBlank), rest_.size())); }

  std::string_view rest_;
  RecordVisitor& out_;
  int64_t line_ = 1;
};

/// Returns the offset at or after `from` at which a text may be split: after a newline that has no white
/// space after it, so that no token crosses the split.
size_t end_of_piece(std::string_view text, size_t from) {
  for (size_t at = text.find('\n', from); at != text.npos; at = text.find('\n', at + 1)) {
    if (at + 1 < text.size() && kBlank.find(text[at + 1]) == kBlank.npos) return at + 1;
  }
  return text.size();
}

void visit_pieces(std::string_view text, RecordVisitor& out) {
  for (int64_t line = 1; !text.empty();) {
    const size_t end =
        text.size() <= DataFile::kPieceBytes ? text.size() : end_of_piece(text, DataFile::kPieceBytes);
    out.deliver({.line = line, .text = text.substr(0, end), .continues = end < text.size()});
    line += num_lines(text.substr(0, end));
    text.remove_prefix(end);
  }
}

void visit_paragraphs(std::string_view text, RecordVisitor& out) {
  int64_t first_line = 1;
  const char* first = nullptr;
  const char* last = nullptr;
  const auto finish = [&] {
    if (first != nullptr)
      out.deliver({.line = first_line, .text = {first, static_cast<size_t>(last - first)}});
    first = nullptr;
  };
  for (int64_t line = 1; !text.empty(); ++line) {
    const std::string_view whole = take_line(text);
    if (trimmed(whole).empty()) {
      finish();
      continue;
    }
    if (first == nullptr) {
      first = whole.data();
      first_line = line;
    }
    last = whole.data() + whole.size();
  }
  finish();
}

}  // namespace

DataFile::DataFile(const fs::path& path, TextUnit unit) : path_(path), unit_(unit) {
  refuse_unsupported_records(path);
  file_ = MappedFile(path);
  const std::string_view text = text_of(file_);
  const size_t first = text.find_first_not_of(kBlank);
  if (first == text.npos) user_error("{}: the file is empty; it must contain training data", path.string());
  if (path.extension() == ".txt") {
    kind_ = Kind::text;
  } else if (text[first] == '[') {
    kind_ = Kind::array;
  }
}

void DataFile::for_each(Visit visit, Faults& faults) const {
  RecordVisitor out(path_.string(), visit, faults);
  const std::string_view text = text_of(file_);
  if (kind_ == Kind::array) return ArrayReader(text, out).run();
  if (kind_ == Kind::lines || unit_ == TextUnit::line) return visit_lines(text, out);
  if (unit_ == TextUnit::paragraph) return visit_paragraphs(text, out);
  visit_pieces(text, out);
}

Json parse_json(std::string_view text) {
  std::string fault;
  std::optional<Json> value = hearth::parse_json<Json>(text, &fault, Unreadable::discarded);
  if (!value) throw RecordError("broken JSON", fault);
  return *std::move(value);
}

Json parse_record(std::string_view text) {
  Json record = parse_json(text);
  if (!record.is_object()) {
    throw RecordError("no object", fmt::format("expected a JSON object, got {}", record.type_name()));
  }
  return record;
}

}  // namespace hearth::text
