#pragma once

#include "text/bpe.h"
#include "text/json_node.h"

namespace hearth::text {

/// Reads a vocabulary {token: id}. With `byte_level`, tokens are decoded from GPT-2's alphabet to bytes.
Vocabulary parse_vocabulary(const JsonNode& node, bool byte_level);

/// Collects merges; the rank of a merge is its position in the file.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, bool byte_level)
      : vocabulary_(vocabulary), byte_level_(byte_level) {}

  /// Adds the merge of two tokens with the next rank. Throws a UserError naming `where` if `left`, `right` or
  /// their concatenation is not a token.
  void add(std::string_view left, std::string_view right, std::string_view where);
  /// Adds a merge written as "left right".
  void add_line(std::string_view line, std::string_view where);
  /// Returns the merges; call it once, after the last add.
  std::vector<Merge> take() { return std::move(merges_); }

 private:
  int32_t id_of(const std::string& token, std::string_view where) const;
  std::string unspelled(std::string_view token) const;

  const Vocabulary& vocabulary_;
  bool byte_level_;
  std::vector<Merge> merges_;
};

}  // namespace hearth::text
