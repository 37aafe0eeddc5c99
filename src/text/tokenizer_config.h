#pragma once

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// Normalization options of BERT-like tokenizers in tokenizer_config.json.
struct BertOptions {
  bool lowercase = true;
  bool chinese = true;
  std::optional<bool> strip_accents;
};

/// Contents of tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder.
struct TokenizerConfig {
  fs::path folder;
  /// True if the folder has a tokenizer_config.json.
  bool is_given = false;
  /// Class name in tokenizer_config.json without a final "Fast"; empty if it is not set.
  std::string tokenizer_class;
  std::optional<std::string> bos, eos, pad, unk;
  std::optional<bool> add_bos, add_eos;
  bool add_prefix_space = false;
  /// True if SentencePiece puts a space before the text after each special token; false if only before the
  /// start of the text.
  bool legacy = true;
  /// Normalization options; set for BERT-like tokenizers only.
  std::optional<BertOptions> bert;
  std::vector<AddedToken> added;
};

/// Reads the config of a tokenizer's folder. Missing fields have their default values.
TokenizerConfig read_tokenizer_config(const fs::path& folder);

/// Parses an AddedToken of tokenizer.json or tokenizer_config.json. `id` is used if the node has none.
AddedToken parse_added_token(const JsonNode& node, std::optional<int64_t> id);

/// Returns the id of a token in `added` or in `vocabulary`, which may be null; nothing if it is in neither.
std::optional<int32_t> find_token(std::string_view token, const std::vector<AddedToken>& added,
                                  const Vocabulary* vocabulary);

/// Sets the ids of BOS, EOS, PAD and UNK whose tokens the config names and `added` or `vocabulary` contains.
void set_roles(SpecialIds& special, const TokenizerConfig& config, const std::vector<AddedToken>& added,
               const Vocabulary* vocabulary);

/// Sets special.prefix and special.suffix by add_bos_token and add_eos_token. `bos`, `eos`: defaults if the
/// config does not set them.
void set_surroundings(SpecialIds& special, const TokenizerConfig& config, bool bos, bool eos);

}  // namespace hearth::text
