#pragma once

#include "text/decoder.h"
#include "text/json_node.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// Calls read(node, type) for a component of tokenizer.json; for a Sequence, calls it for each of its
/// components, recursively. `members`: key of a Sequence's list. The recursion is limited by the max depth of
/// JSON parsing.
template <typename Read>
void for_each_in_sequence(const JsonNode& node, const std::string& members, Read&& read) {
  if (node.at("type").string() != "Sequence") return read(node, node.at("type").string());
  for (const JsonNode& member : node.at(members).elements()) for_each_in_sequence(member, members, read);
}

/// Parses the normalizer of tokenizer.json. This and the other parsers in this file throw a UserError naming
/// file and field for an unsupported type.
Normalizer parse_normalizer(const JsonNode& node);

/// A pre-tokenizer; `byte_level` is true if the vocabulary is written in GPT-2's alphabet.
struct ParsedPreTokenizer {
  PreTokenizer pre_tokenizer;
  bool byte_level = false;
};
/// Parses the pre-tokenizer of tokenizer.json.
ParsedPreTokenizer parse_pre_tokenizer(const JsonNode& node);

/// Parses the decoder of tokenizer.json. Throws a UserError if it disagrees with `byte_level`, which is true
/// if the vocabulary is written in GPT-2's alphabet.
Decoder parse_decoder(const JsonNode& node, bool byte_level);

/// Parses the post-processor of tokenizer.json: sets special.prefix and special.suffix, the ids around a
/// single text.
void parse_post_processor(const JsonNode& node, SpecialIds& special);

}  // namespace hearth::text
