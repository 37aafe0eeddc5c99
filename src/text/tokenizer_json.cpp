#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/bpe_files.h"
#include "text/components_json.h"
#include "text/formats.h"

namespace hearth::text {
namespace {

/// Both forms: "left right" and ["left", "right"].
std::vector<Merge> parse_merges(const JsonNode& node, const Vocabulary& vocabulary, bool byte_level) {
  if (!node.json().is_array()) node.refuse("an array of merges");
  const std::string where = node.where();
  MergeReader reader(vocabulary, byte_level);
  for (const nlohmann::json& merge : node.json()) {
    if (merge.is_string()) {
      reader.add_line(merge.get_ref<const std::string&>(), where);
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      reader.add(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>(), where);
    } else {
      node.refuse("merges like \"a b\" or [\"a\", \"b\"]");
    }
  }
  return reader.take();
}

void check_supported(const JsonNode& model) {
  const auto type = model.find("type");
  if (type && type->string() != "BPE") type->refuse("a tokenizer of type BPE");
  const auto dropout = model.find("dropout");
  if (dropout && dropout->json() != 0) dropout->refuse("no dropout");
  const std::string prefix = model.string_or("continuing_subword_prefix", "");
  if (!prefix.empty()) model.at("continuing_subword_prefix").refuse("no prefix");
}

std::vector<AddedToken> parse_added(const JsonNode& root) {
  std::vector<AddedToken> added;
  if (const auto list = root.find("added_tokens")) {
    for (const JsonNode& token : list->elements()) added.push_back(parse_added_token(token, std::nullopt));
  }
  return added;
}

std::optional<int32_t> find_unk(const JsonNode& model, const Vocabulary& vocabulary,
                                const std::vector<AddedToken>& added) {
  const auto name = model.find("unk_token");
  if (!name) return std::nullopt;
  if (const auto id = find_token(name->string(), added, &vocabulary)) return id;
  name->refuse("a token of the vocabulary");
}

Bpe parse_model(const JsonNode& model, bool byte_level, const std::vector<AddedToken>& added) {
  check_supported(model);
  Vocabulary vocabulary = parse_vocabulary(model.at("vocab"), byte_level);
  const std::vector<Merge> merges = parse_merges(model.at("merges"), vocabulary, byte_level);
  BpeOptions options{.byte_level = byte_level,
                     .byte_fallback = !byte_level && model.boolean_or("byte_fallback", false),
                     .ignore_merges = model.boolean_or("ignore_merges", false),
                     .fuse_unk = model.boolean_or("fuse_unk", false),
                     .unk = find_unk(model, vocabulary, added),
                     .end_of_word_suffix = model.string_or("end_of_word_suffix", "")};
  return Bpe(std::move(vocabulary), merges, std::move(options), model.where());
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view file,
                                                const TokenizerConfig& config) {
  const nlohmann::json parsed = parse_json(json, file);
  const JsonNode root(parsed, file);
  ParsedPreTokenizer pre;
  if (const auto node = root.find("pre_tokenizer")) pre = parse_pre_tokenizer(*node);
  std::vector<AddedToken> added = parse_added(root);
  Parts parts{.added = added, .model = parse_model(root.at("model"), pre.byte_level, added), .special = {}};
  parts.pre_tokenizer = std::move(pre.pre_tokenizer);
  if (const auto node = root.find("normalizer")) parts.normalizer = parse_normalizer(*node);
  if (const auto node = root.find("decoder")) parts.decoder = parse_decoder(*node, pre.byte_level);
  if (const auto node = root.find("post_processor")) parse_post_processor(*node, parts.special);
  parts.special.unk = parts.model.options().unk;
  set_roles(parts.special, config, added, &parts.model.vocabulary());
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace hearth::text
