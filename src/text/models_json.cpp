#include "text/models_json.h"

#include <nlohmann/json.hpp>

#include "text/bpe_files.h"
#include "text/tokenizer_config.h"

namespace hearth::text {
namespace {

/// Parses merges in either form, "left right" or ["left", "right"].
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
  const auto dropout = model.find("dropout");
  if (dropout && dropout->json() != 0) dropout->refuse("no dropout");
  const std::string prefix = model.string_or("continuing_subword_prefix", "");
  if (!prefix.empty()) model.at("continuing_subword_prefix").refuse("no prefix");
}

std::optional<int32_t> find_unk(const JsonNode& model, const Vocabulary& vocabulary,
                                const std::vector<AddedToken>& added) {
  const auto name = model.find("unk_token");
  if (!name) return std::nullopt;
  if (const auto id = find_token(name->string(), added, &vocabulary)) return id;
  name->refuse("a token of the vocabulary");
}

Bpe parse_bpe(const JsonNode& model, bool byte_level, const std::vector<AddedToken>& added) {
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

/// Parses a vocabulary [["<unk>", 0.0], ["a", -1.5], ...].
Unigram parse_unigram(const JsonNode& model) {
  const JsonNode vocab = model.at("vocab");
  if (!vocab.json().is_array() || vocab.json().empty()) vocab.refuse("an array of tokens and scores");
  const std::string where = vocab.where();
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (const nlohmann::json& entry : vocab.json()) {
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      vocab.refuse("pairs like [\"a\", -1.5]");
    vocabulary.add(entry[0].get_ref<const std::string&>(), std::ssize(scores), where);
    scores.push_back(entry[1].get<double>());
  }
  std::optional<int32_t> unk;
  if (const auto id = model.find("unk_id"))
    unk = static_cast<int32_t>(id->integer(0, int64_t{vocabulary.size()} - 1));
  return Unigram(std::move(vocabulary), std::move(scores), unk, model.boolean_or("byte_fallback", false),
                 model.where());
}

WordPiece parse_word_piece(const JsonNode& model) {
  Vocabulary vocabulary = parse_vocabulary(model.at("vocab"), false);
  const std::optional<int32_t> unk = vocabulary.find(model.at("unk_token").string());
  WordPieceOptions options{.prefix = model.at("continuing_subword_prefix").string(),
                           .max_characters = model.at("max_input_chars_per_word").integer(0, INT64_MAX),
                           .unk = unk};
  return WordPiece(std::move(vocabulary), std::move(options), model.where());
}

WordLevel parse_word_level(const JsonNode& model) {
  Vocabulary vocabulary = parse_vocabulary(model.at("vocab"), false);
  const std::optional<int32_t> unk = vocabulary.find(model.at("unk_token").string());
  return WordLevel(std::move(vocabulary), unk, model.where());
}

}  // namespace

Model parse_model(const JsonNode& model, bool byte_level, const std::vector<AddedToken>& added) {
  const std::string type = model.string_or("type", "BPE");
  if (type == "BPE") return parse_bpe(model, byte_level, added);
  if (byte_level) model.at("type").refuse("BPE with a ByteLevel pre_tokenizer");
  if (type == "Unigram") return parse_unigram(model);
  if (type == "WordPiece") return parse_word_piece(model);
  if (type == "WordLevel") return parse_word_level(model);
  model.at("type").refuse("BPE, Unigram, WordPiece or WordLevel");
}

}  // namespace hearth::text
