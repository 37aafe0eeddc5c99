#pragma once

#include "text/bpe.h"
#include "text/json_node.h"

namespace hearth::text {

/// A vocabulary and its merges as files spell them; with `byte_level`, tokens are turned into their bytes.
Vocabulary parse_vocabulary(const JsonNode& node, bool byte_level);

/// Collects merges in the order of their ranks.
class MergeReader {
 public:
  MergeReader(const Vocabulary& vocabulary, bool byte_level)
      : vocabulary_(vocabulary), byte_level_(byte_level) {}

  /// UserError naming `where` when one of the two, or what they make, is no token.
  void add(std::string_view left, std::string_view right, std::string_view where);
  /// "left right".
  void add_line(std::string_view line, std::string_view where);
  std::vector<Merge> take() { return std::move(merges_); }

 private:
  int32_t id_of(const std::string& token, std::string_view where) const;
  std::string unspelled(std::string_view token) const;

  const Vocabulary& vocabulary_;
  bool byte_level_;
  std::vector<Merge> merges_;
};

}  // namespace hearth::text
