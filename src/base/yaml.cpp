#include "base/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace hearth {
namespace {

/// Throws a UserError for deep nesting, because yaml-cpp recurses per level; valid files have two or three
/// levels. Closing brackets are not counted, because quoted text may contain them.
void check_nesting(std::string_view text, const std::string& where) {
  constexpr int64_t kMaxBrackets = 256;
  constexpr size_t kMaxColumns = 64;
  if (std::ranges::count_if(text, [](char c) { return c == '[' || c == '{'; }) > kMaxBrackets) {
    user_error("more than {} opening brackets in {}; write one 'key: value' per line", kMaxBrackets, where);
  }
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const size_t indent = std::min(text.find_first_not_of(" \t-?:!&*|>", at), end) - at;
    if (indent > kMaxColumns) {
      user_error("expected at most {} columns of indentation, got {} in {}:{}; try two for each level",
                 kMaxColumns, indent, where, line);
    }
    at = end + 1;
  }
}

/// Lines at which the documents of a text start.
class DocumentStarts : public YAML::EventHandler {
 public:
  std::vector<int> lines;

  void OnDocumentStart(const YAML::Mark& mark) override { lines.push_back(mark.line + 1); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

/// Throws a UserError if the text has a second document. YAML::LoadAll is not used: for a stray comma it
/// loops forever, over empty documents.
void check_one_document(const std::string& text, const std::string& where, std::string_view kind) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (!parser.HandleNextDocument(starts) || !parser.HandleNextDocument(starts)) return;
  user_error(
      "expected one {}, but another one follows in {}:{}; use a file for each, or quote text with special "
      "characters",
      kind, where, starts.lines.back());
}

}  // namespace

int64_t line_of_bytes_that_are_no_text(std::string_view text) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    line += byte == '\n';
    if (byte == '\n' || byte == '\r' || byte == '\t') continue;
    if (byte < 0x20 || byte == 0x7f) return line;
    const int more = byte < 0x80   ? 0
                     : byte < 0xc2 ? -1
                     : byte < 0xe0 ? 1
                     : byte < 0xf0 ? 2
                     : byte < 0xf5 ? 3
                                   : -1;
    if (more < 0) return line;
    for (int i = 0; i < more; ++i) {
      if (++at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80) return line;
    }
  }
  return 0;
}

YAML::Node parse_yaml(const std::string& text, const std::string& where, const YamlKind& kind) {
  if (std::ssize(text) > kMaxYamlBytes) {
    user_error("expected a {} of at most 1 MiB, got {} bytes in {}; {}", kind.name, text.size(), where,
               kind.advice);
  }
  if (const int64_t line = line_of_bytes_that_are_no_text(text); line != 0)
    user_error("expected text in UTF-8, got invalid bytes in {}:{}; {}", where, line, kind.advice);
  check_nesting(text, where);
  try {
    check_one_document(text, where, kind.name);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    user_error("expected YAML, got '{}' in {}:{}; quote text with special characters", error.msg, where,
               error.mark.line + 1);
  }
}

std::string yaml_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += fmt::format("\\{}", c);
    } else if (code < 0x20 || code == 0x7f) {
      quoted += fmt::format("\\x{:02x}", code);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace hearth
