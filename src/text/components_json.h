#pragma once

#include "text/decoder.h"
#include "text/json_node.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// Calls read(node, type) for a component of tokenizer.json, or for each of a Sequence, whose list is called
/// `members`, at any depth that the JSON may have.
template <typename Read>
void for_each_in_sequence(const JsonNode& node, const std::string& members, Read&& read) {
  if (node.at("type").string() != "Sequence") return read(node, node.at("type").string());
  for (const JsonNode& member : node.at(members).elements()) for_each_in_sequence(member, members, read);
}

/// The components of tokenizer.json. UserError naming file and field for a type that is not supported.
Normalizer parse_normalizer(const JsonNode& node);

/// `byte_level` says that the vocabulary is spelled in GPT-2's alphabet.
struct ParsedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;
};
ParsedPreTokenizer parse_pre_tokenizer(const JsonNode& node);

/// `byte_level` says whether the vocabulary is; the decoder must agree.
Decoder parse_decoder(const JsonNode& node, bool byte_level);

/// Sets the prefix and suffix that the post-processor puts around a single text.
void parse_post_processor(const JsonNode& node, SpecialIds& special);

}  // namespace hearth::text
