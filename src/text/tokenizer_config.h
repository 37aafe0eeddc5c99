#pragma once

#include "text/added_tokens.h"
#include "text/json_node.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// How the tokenizers of BERT's family treat a text, where tokenizer_config.json says it.
struct BertOptions {
  bool lowercase = true;
  bool chinese = true;
  std::optional<bool> strip_accents;
};

/// What tokenizer_config.json, special_tokens_map.json and added_tokens.json of a folder say.
struct TokenizerConfig {
  fs::path folder;
  /// Whether there is a tokenizer_config.json.
  bool is_given = false;
  /// "" when no file says it; "Fast" at its end is left out.
  std::string tokenizer_class;
  std::optional<std::string> bos, eos, pad, unk;
  std::optional<bool> add_bos, add_eos;
  bool add_prefix_space = false;
  /// Whether SentencePiece puts a space ahead of the text after each special token, not of the first alone.
  bool legacy = true;
  /// For tokenizers of BERT's family alone.
  std::optional<BertOptions> bert;
  std::vector<AddedToken> added;
};

/// The config of a folder; what is absent has its default.
TokenizerConfig read_tokenizer_config(const fs::path& folder);

/// An AddedToken as tokenizer.json and tokenizer_config.json write it; `id` when it has none of its own.
AddedToken parse_added_token(const JsonNode& node, std::optional<int64_t> id);

/// The id of a token that is added or of the vocabulary, which may be null.
std::optional<int32_t> find_token(std::string_view token, const std::vector<AddedToken>& added,
                                  const Vocabulary* vocabulary);

/// Sets the ids of the roles that the config names, where there is such a token.
void set_roles(SpecialIds& special, const TokenizerConfig& config, const std::vector<AddedToken>& added,
               const Vocabulary* vocabulary);

/// Sets prefix and suffix as add_bos_token and add_eos_token ask; where they are silent, as `bos` and `eos`
/// do.
void set_surroundings(SpecialIds& special, const TokenizerConfig& config, bool bos, bool eos);

}  // namespace hearth::text
