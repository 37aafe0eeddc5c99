#include "text/bpe_files.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/byte_level.h"

namespace hearth::text {

Vocabulary parse_vocabulary(const JsonNode& node, bool byte_level) {
  if (!node.json().is_object()) node.refuse("an object of tokens and ids");
  Vocabulary vocabulary;
  const std::string where = node.where();
  for (const auto& [token, id] : node.json().items()) {
    if (!id.is_number_integer()) user_error("{}: expected a whole number as id of '{}'", where, token);
    const std::optional<std::string> bytes = byte_level ? from_byte_level(token) : token;
    if (bytes) {
      vocabulary.add(*bytes, id.get<int64_t>(), where);
    } else {
      vocabulary.add_hidden(token, id.get<int64_t>(), where);
    }
  }
  if (vocabulary.size() == 0) node.refuse("at least one token");
  return vocabulary;
}

std::string MergeReader::unspelled(std::string_view token) const {
  if (!byte_level_) return std::string(token);
  return from_byte_level(token).value_or(std::string(token));
}

int32_t MergeReader::id_of(const std::string& token, std::string_view where) const {
  const std::optional<int32_t> id = vocabulary_.find(token);
  if (!id) {
    user_error("{}: merge {} has '{}', which is not in the vocabulary; download the files again", where,
               merges_.size(), byte_level_ ? to_byte_level(token) : token);
  }
  return *id;
}

void MergeReader::add(std::string_view left, std::string_view right, std::string_view where) {
  const std::string left_bytes = unspelled(left);
  const std::string right_bytes = unspelled(right);
  merges_.push_back({.left = id_of(left_bytes, where),
                     .right = id_of(right_bytes, where),
                     .rank = static_cast<int32_t>(merges_.size()),
                     .merged = id_of(left_bytes + right_bytes, where)});
}

void MergeReader::add_line(std::string_view line, std::string_view where) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    user_error("{}: expected two tokens with one space between as merge {}, got '{}'", where, merges_.size(),
               line.substr(0, 80));
  }
  add(line.substr(0, space), line.substr(space + 1), where);
}

}  // namespace hearth::text
