#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/components_json.h"
#include "text/formats.h"
#include "text/models_json.h"

namespace hearth::text {
namespace {

std::vector<AddedToken> parse_added(const JsonNode& root) {
  std::vector<AddedToken> added;
  if (const auto list = root.find("added_tokens")) {
    for (const JsonNode& token : list->elements()) added.push_back(parse_added_token(token, std::nullopt));
  }
  return added;
}

/// Returns the pre-tokenizer with the add_prefix_space of tokenizer_config.json, which transformers prefers
/// to that of a ByteLevel step outside of a Sequence.
nlohmann::json with_prefix_space(const JsonNode& node, const TokenizerConfig& config) {
  nlohmann::json pre_tokenizer = node.json();
  if (!config.is_given || node.at("type").string() != "ByteLevel") return pre_tokenizer;
  const bool written = node.boolean_or("add_prefix_space", true);
  const bool general =
      config.tokenizer_class == "PreTrainedTokenizer" || config.tokenizer_class == "TokenizersBackend";
  if (general && written != config.add_prefix_space) {
    user_error(
        "{0}: field 'add_prefix_space' is {2}, but {1} in tokenizer.json; versions of transformers differ in "
        "which one they use, so set both to the value that the model was trained with",
        (config.folder / "tokenizer_config.json").string(), written, config.add_prefix_space);
  }
  pre_tokenizer["add_prefix_space"] = config.add_prefix_space;
  return pre_tokenizer;
}

/// Returns the normalizer with the BERT options of tokenizer_config.json, which transformers prefers to those
/// of BertNormalizer.
nlohmann::json with_options(nlohmann::json normalizer, const std::optional<BertOptions>& options) {
  if (!options || !normalizer.is_object() || normalizer.value("type", nlohmann::json()) != "BertNormalizer")
    return normalizer;
  normalizer["lowercase"] = options->lowercase;
  normalizer["handle_chinese_chars"] = options->chinese;
  normalizer["strip_accents"] = nullptr;
  if (options->strip_accents) normalizer["strip_accents"] = *options->strip_accents;
  return normalizer;
}

}  // namespace

std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view file,
                                                const TokenizerConfig& config) {
  const nlohmann::json parsed = parse_json(json, file);
  const JsonNode root(parsed, file);
  ParsedPreTokenizer pre;
  if (const auto node = root.find("pre_tokenizer")) {
    const nlohmann::json pre_tokenizer = with_prefix_space(*node, config);
    pre = parse_pre_tokenizer(JsonNode(pre_tokenizer, file, "pre_tokenizer"));
  }
  std::vector<AddedToken> added = parse_added(root);
  Parts parts{.added = added, .model = parse_model(root.at("model"), pre.byte_level, added), .special = {}};
  parts.pre_tokenizer = std::move(pre.pre_tokenizer);
  if (const auto node = root.find("normalizer")) {
    const nlohmann::json normalizer = with_options(node->json(), config.bert);
    parts.normalizer = parse_normalizer(JsonNode(normalizer, file, "normalizer"));
  }
  const auto decoder = root.find("decoder");
  if (decoder) parts.decoder = parse_decoder(*decoder, pre.byte_level);
  if (!decoder && !pre.byte_level) parts.decoder = Decoder({Separate{}});
  if (const auto node = root.find("post_processor")) parse_post_processor(*node, parts.special);
  parts.special.unk = unk_of(parts.model);
  set_roles(parts.special, config, added, &vocabulary_of(parts.model));
  return std::make_unique<Pipeline>(std::move(parts));
}

}  // namespace hearth::text
