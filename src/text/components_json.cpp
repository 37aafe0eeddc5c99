#include "text/components_json.h"

#include <array>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "text/base64.h"
#include "text/bpe.h"
#include "text/character_classes.h"
#include "text/regex_syntax.h"

namespace hearth::text {
namespace {

/// Max number of steps of a normalizer or pre-tokenizer: each scans the full text and uses a stack frame.
constexpr size_t kMaxSteps = 256;

/// Parses {"Regex": ...} or {"String": ...}; a plain string is a literal.
Pattern parse_pattern(const JsonNode& node) {
  if (node.json().is_string()) return {.literal = node.string()};
  if (const auto regex = node.find("Regex")) {
    return {.regex = std::make_shared<Regex>(regex->string(), regex->where())};
  }
  return {.literal = node.at("String").string()};
}

bool is_blank(char32_t value) { return is_space(value); }
const SplitStep kSplitAtSpace = {.pattern = {.is_member = is_blank}, .matches = Split::removed};

Pattern regex_of(const char* pattern) { return {.regex = std::make_shared<Regex>(pattern, "tokenizer")}; }

Replace parse_replace(const JsonNode& node) {
  return {.pattern = parse_pattern(node.at("pattern")), .content = node.at("content").string()};
}

bool is_unwanted(char32_t value) { return value == 0xFFFD || is_other(value); }

std::vector<NormalizerStep> parse_bert_normalizer(const JsonNode& node) {
  const bool lowercase = node.at("lowercase").boolean();
  std::vector<NormalizerStep> steps;
  if (node.at("clean_text").boolean()) steps = {RemoveCharacters{is_unwanted}, CharactersToSpace{is_blank}};
  if (node.at("handle_chinese_chars").boolean()) steps.emplace_back(SpaceAround{is_chinese});
  if (node.boolean_or("strip_accents", lowercase)) {
    steps.emplace_back(Compose{UnicodeForm::nfd});
    steps.emplace_back(RemoveCharacters{is_nonspacing_mark});
  }
  if (lowercase) steps.emplace_back(Lowercase{});
  return steps;
}

bool is_nmt_control(char32_t value) {
  return (value >= 0x01 && value <= 0x08) || value == 0x0B || (value >= 0x0E && value <= 0x1F) ||
         value == 0x7F || value == 0x8F || value == 0x9F;
}
bool is_nmt_blank(char32_t value) {
  return value == 0x09 || value == 0x0A || value == 0x0C || value == 0x0D || value == 0x1680 ||
         (value >= 0x200B && value <= 0x200F) || value == 0x2028 || value == 0x2029 || value == 0x2581 ||
         value == 0xFEFF || value == 0xFFFD;
}

MapCharacters parse_precompiled(const JsonNode& node) {
  const JsonNode map = node.at("precompiled_charsmap");
  const std::optional<std::string> bytes = from_base64(map.string());
  if (!bytes) map.refuse("a map of characters in base64");
  return {std::make_shared<CharacterMap>(*bytes, map.where())};
}

NormalizerStep parse_normalizer_step(const JsonNode& node, const std::string& type) {
  if (type == "NFC") return Compose{UnicodeForm::nfc};
  if (type == "NFD") return Compose{UnicodeForm::nfd};
  if (type == "NFKC") return Compose{UnicodeForm::nfkc};
  if (type == "NFKD") return Compose{UnicodeForm::nfkd};
  if (type == "Lowercase") return Lowercase{};
  if (type == "StripAccents") return RemoveCharacters{is_mark};
  if (type == "Precompiled") return parse_precompiled(node);
  if (type == "Prepend") return Prepend{node.at("prepend").string()};
  if (type == "Strip")
    return Strip{node.boolean_or("strip_left", true), node.boolean_or("strip_right", true)};
  if (type == "Replace") return parse_replace(node);
  node.at("type").refuse(
      "BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Nmt, Precompiled, Prepend, Replace, "
      "Strip or "
      "Sequence");
}

Split parse_behavior(const JsonNode& node) {
  const std::string name = node.string();
  if (name == "Removed") return Split::removed;
  if (name == "Isolated") return Split::isolated;
  if (name == "MergedWithPrevious") return Split::merged_with_previous;
  if (name == "MergedWithNext") return Split::merged_with_next;
  if (name == "Contiguous") return Split::contiguous;
  node.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

SplitStep parse_split(const JsonNode& node) {
  return {.pattern = parse_pattern(node.at("pattern")),
          .matches = parse_behavior(node.at("behavior")),
          .invert = node.boolean_or("invert", false)};
}

SplitStep parse_punctuation(const JsonNode& node) {
  const auto behavior = node.find("behavior");
  return {.pattern = {.is_member = is_punctuation},
          .matches = behavior ? parse_behavior(*behavior) : Split::isolated};
}

MetaspaceStep parse_metaspace(const JsonNode& node) {
  MetaspaceStep step{.replacement = node.string_or("replacement", std::string(kMetaspace)),
                     .prefix = node.boolean_or("add_prefix_space", true) ? MetaspaceStep::Prefix::always
                                                                         : MetaspaceStep::Prefix::never,
                     .split = node.boolean_or("split", true)};
  if (step.replacement.empty() || first_character(step.replacement).bytes != step.replacement.size()) {
    node.at("replacement").refuse("a character");
  }
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string name = scheme->string();
    if (name != "always" && name != "first" && name != "never") scheme->refuse("always, first or never");
    if (step.prefix == MetaspaceStep::Prefix::never && name != "never")
      scheme->refuse("never, because add_prefix_space is false");
    step.prefix = name == "always"  ? MetaspaceStep::Prefix::always
                  : name == "first" ? MetaspaceStep::Prefix::first
                                    : MetaspaceStep::Prefix::never;
  }
  return step;
}

PreTokenizerStep parse_pre_tokenizer_step(const JsonNode& node, const std::string& type) {
  if (type == "Split") return parse_split(node);
  if (type == "Digits") {
    return SplitStep{.pattern =
                         regex_of(node.boolean_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)")};
  }
  if (type == "Punctuation") return parse_punctuation(node);
  if (type == "Metaspace") return parse_metaspace(node);
  if (type == "Whitespace") {
    return SplitStep{.pattern = regex_of(fmt::format("[{0}]+|[^{0}\\s]+", kRustWord).c_str()),
                     .matches = Split::removed,
                     .invert = true};
  }
  if (type == "WhitespaceSplit") return kSplitAtSpace;
  if (type == "CharDelimiterSplit") {
    return SplitStep{.pattern = {.literal = node.at("delimiter").string()}, .matches = Split::removed};
  }
  node.at("type").refuse(
      "BertPreTokenizer, ByteLevel, Split, Digits, Punctuation, Metaspace, Whitespace, WhitespaceSplit, "
      "CharDelimiterSplit or "
      "Sequence");
}

std::vector<int32_t> ids_of(const JsonNode& node) {
  std::vector<int32_t> ids;
  for (const JsonNode& id : node.elements()) {
    ids.push_back(static_cast<int32_t>(id.integer(0, Vocabulary::kMaxId)));
  }
  return ids;
}

/// Adds prefix ids before, and suffix ids after, those of earlier post-processors.
void surround(SpecialIds& special, std::span<const int32_t> prefix, std::span<const int32_t> suffix) {
  special.prefix.insert(special.prefix.begin(), prefix.begin(), prefix.end());
  special.suffix.insert(special.suffix.end(), suffix.begin(), suffix.end());
}

void parse_template(const JsonNode& node, SpecialIds& special) {
  std::array<std::vector<int32_t>, 2> around;
  size_t num_texts = 0;
  for (const JsonNode& piece : node.at("single").elements()) {
    if (const auto text = piece.find("Sequence")) {
      if (text->at("id").string() != "A" || ++num_texts > 1) piece.refuse("one Sequence A in the template");
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").string();
    const std::vector<int32_t> more = ids_of(node.at("special_tokens").at(name).at("ids"));
    around[num_texts].insert(around[num_texts].end(), more.begin(), more.end());
  }
  if (num_texts == 0) node.at("single").refuse("one Sequence A in the template");
  surround(special, around[0], around[1]);
}

/// Parses a pair such as ["</s>", 2] and returns the id.
int32_t id_of_pair(const JsonNode& node) {
  const std::vector<JsonNode> pair = node.elements();
  if (pair.size() != 2) node.refuse("a token and its id");
  return static_cast<int32_t>(pair[1].integer(0, Vocabulary::kMaxId));
}

StripTokens parse_strip_decoder(const JsonNode& node) {
  constexpr int64_t kMaxTimes = 1024;
  StripTokens step{.content = node.at("content").string(),
                   .left = node.at("start").integer(0, kMaxTimes),
                   .right = node.at("stop").integer(0, kMaxTimes)};
  if (step.content.empty()) node.at("content").refuse("a character");
  return step;
}

DecoderStep parse_decoder_step(const JsonNode& node, const std::string& type) {
  if (type == "ByteFallback") return JoinBytes{};
  if (type == "Fuse") return Fuse{};
  if (type == "Strip") return parse_strip_decoder(node);
  if (type == "BPEDecoder") return SuffixToSpace{node.string_or("suffix", "</w>")};
  if (type == "Replace") return parse_replace(node);
  if (type == "WordPiece") return JoinWordPieces{node.at("prefix").string(), node.at("cleanup").boolean()};
  if (type == "Metaspace") {
    const MetaspaceStep step = parse_metaspace(node);
    return MetaspaceToSpace{step.replacement, step.prefix != MetaspaceStep::Prefix::never};
  }
  node.at("type").refuse(
      "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, BPEDecoder, "
      "WordPiece or Sequence");
}

}  // namespace

Normalizer parse_normalizer(const JsonNode& node) {
  std::vector<NormalizerStep> steps;
  for_each_in_sequence(node, "normalizers", [&](const JsonNode& step, const std::string& type) {
    if (type == "BertNormalizer") {
      for (NormalizerStep& part : parse_bert_normalizer(step)) steps.push_back(std::move(part));
    } else if (type == "Nmt") {
      steps.emplace_back(RemoveCharacters{is_nmt_control});
      steps.emplace_back(CharactersToSpace{is_nmt_blank});
    } else {
      steps.push_back(parse_normalizer_step(step, type));
    }
  });
  if (steps.size() > kMaxSteps) node.refuse(fmt::format("at most {} steps", kMaxSteps));
  return Normalizer(std::move(steps));
}

ParsedPreTokenizer parse_pre_tokenizer(const JsonNode& node) {
  bool byte_level = false;
  std::vector<PreTokenizerStep> steps;
  std::vector<PreTokenizerStep> spelled;
  for_each_in_sequence(node, "pretokenizers", [&](const JsonNode& step, const std::string& type) {
    std::vector<PreTokenizerStep>& list = byte_level ? spelled : steps;
    if (type == "BertPreTokenizer") {
      list.emplace_back(kSplitAtSpace);
      list.emplace_back(SplitStep{.pattern = {.is_member = is_punctuation}});
      return;
    }
    if (type != "ByteLevel") return list.push_back(parse_pre_tokenizer_step(step, type));
    if (byte_level) step.refuse("one ByteLevel");
    if (step.boolean_or("add_prefix_space", true)) steps.emplace_back(PrefixSpaceStep{});
    if (step.boolean_or("use_regex", true)) steps.emplace_back(SplitStep{.pattern = regex_of(kGpt2Pattern)});
    byte_level = true;
  });
  if (steps.size() + spelled.size() > kMaxSteps) node.refuse(fmt::format("at most {} steps", kMaxSteps));
  // Pieces are byte strings. Only the steps after ByteLevel expect GPT-2's alphabet, so the text is converted
  // to it before them and back after them.
  if (!spelled.empty()) {
    steps.emplace_back(SpellBytesStep{});
    for (PreTokenizerStep& step : spelled) steps.push_back(std::move(step));
    steps.emplace_back(UnspellBytesStep{});
  }
  return {PreTokenizer(std::move(steps)), byte_level};
}

Decoder parse_decoder(const JsonNode& node, bool byte_level) {
  std::vector<DecoderStep> steps;
  for_each_in_sequence(node, "decoders", [&](const JsonNode& step, const std::string& type) {
    if (type != "ByteLevel") return steps.push_back(parse_decoder_step(step, type));
    if (!byte_level) step.refuse("a ByteLevel decoder only with a ByteLevel pre_tokenizer");
  });
  if (steps.size() > kMaxSteps) node.refuse(fmt::format("at most {} steps", kMaxSteps));
  return Decoder(std::move(steps));
}

void parse_post_processor(const JsonNode& node, SpecialIds& special) {
  for_each_in_sequence(node, "processors", [&](const JsonNode& step, const std::string& type) {
    if (type == "TemplateProcessing") return parse_template(step, special);
    if (type == "RobertaProcessing" || type == "BertProcessing") {
      const int32_t cls = id_of_pair(step.at("cls")), sep = id_of_pair(step.at("sep"));
      return surround(special, {&cls, 1}, {&sep, 1});
    }
    if (type != "ByteLevel") {
      step.at("type").refuse("ByteLevel, TemplateProcessing, RobertaProcessing, BertProcessing or Sequence");
    }
  });
}

}  // namespace hearth::text
