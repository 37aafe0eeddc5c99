// Converts the tokenizer tables of a GGUF file to tokenizer.json. Added tokens are in the vocabulary as well,
// so that their ids do not depend on their order.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/ggml_patterns.h"
#include "text/ggml_vocabulary.h"

namespace hearth::text {
namespace {

/// JSON whose objects have sorted keys: adding a token to the vocabulary takes logarithmic time.
using SortedJson = nlohmann::json;
using Kind = GgmlVocabulary::Kind;

class TokenizerJson {
 public:
  TokenizerJson(const GgmlVocabulary& vocabulary, const std::string& where)
      : vocabulary_(vocabulary), where_(where) {}

  std::string text() {
    check_sizes();
    SortedJson json{{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    json["added_tokens"] = added_tokens();
    const bool is_llama = vocabulary_.model == "llama";
    if (!is_llama && vocabulary_.model != "gpt2") {
      user_error(
          "{}: the tokenizer model '{}' is not supported (gpt2 and llama are); use the original model's "
          "folder",
          where_, vocabulary_.model);
    }
    is_llama ? add_sentencepiece(json) : add_byte_level(json);
    return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
  }

 private:
  void check_sizes() const {
    const auto check = [&](const char* name, size_t size, bool optional) {
      if (size == vocabulary_.tokens.size() || (optional && size == 0)) return;
      user_error("{}: the tokenizer has {} tokens, but {} {}; convert the model again", where_,
                 vocabulary_.tokens.size(), size, name);
    };
    check("token types", vocabulary_.kinds.size(), false);
    check("scores", vocabulary_.scores.size(), vocabulary_.model != "llama");
    for (const auto& id : {vocabulary_.bos, vocabulary_.eos, vocabulary_.unk, vocabulary_.pad}) {
      if (id && (*id < 0 || *id >= std::ssize(vocabulary_.tokens)))
        user_error("{}: a special token has the id {}, but there are {} tokens; convert the model again",
                   where_, *id, vocabulary_.tokens.size());
    }
  }

  const std::string& token(int32_t id) const { return vocabulary_.tokens[static_cast<size_t>(id)]; }

  /// True for ids that pad the vocabulary to the size of the embedding table.
  bool is_padding(size_t id) const {
    return vocabulary_.kinds[id] == Kind::unused && vocabulary_.tokens[id] == fmt::format("[PAD{}]", id);
  }

  static bool keeps_space(std::string_view token) {
    return token == "<unk>" || token == "<s>" || token == "<|endoftext|>";
  }

  SortedJson added_tokens() const {
    SortedJson added = SortedJson::array();
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const Kind kind = vocabulary_.kinds[i];
      const bool special = kind == Kind::control || kind == Kind::unknown;
      const std::string& token = vocabulary_.tokens[i];
      if (!special && kind != Kind::user_defined) continue;
      added.push_back({{"id", i},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", vocabulary_.strips_right && !keeps_space(token)},
                       {"normalized", false},
                       {"special", special}});
    }
    return added;
  }

  SortedJson vocab_json() const {
    SortedJson vocab = SortedJson::object();
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const std::string& token = vocabulary_.tokens[i];
      if (valid_prefix(token) != token.size())
        user_error("{}: token {} is not UTF-8; convert the model again", where_, i);
      if (!is_padding(i)) vocab.emplace(token, i);
    }
    return vocab;
  }

  /// Returns a post-processor that surrounds a text with BOS and EOS; null if it adds neither.
  SortedJson post_processor(bool adds_bos) const {
    SortedJson single = SortedJson::array(), special = SortedJson::object();
    const auto add = [&](std::optional<int32_t> id) {
      const std::string& name = token(*id);
      single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
      special[name] = {{"id", name}, {"ids", {*id}}, {"tokens", {name}}};
    };
    if (vocabulary_.bos && vocabulary_.add_bos.value_or(adds_bos)) add(vocabulary_.bos);
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (vocabulary_.eos && vocabulary_.add_eos.value_or(false)) add(vocabulary_.eos);
    if (single.size() == 1) return nullptr;
    SortedJson pair = single;
    for (SortedJson piece : single) {
      piece.front()["type_id"] = 1;
      if (piece.contains("Sequence")) piece["Sequence"]["id"] = "B";
      pair.push_back(std::move(piece));
    }
    return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
  }

  const GgmlPattern& pattern() const {
    std::vector<std::string_view> names;
    for (const GgmlPattern& one : ggml_patterns()) {
      if (vocabulary_.pre == one.name) return one;
      names.emplace_back(one.name);
    }
    user_error(
        "{}: the pre-tokenizer '{}' (tokenizer.ggml.pre) is not supported ({} are); use the original model's "
        "folder, or set model.tokenizer to its tokenizer.json",
        where_, vocabulary_.pre, fmt::join(names, ", "));
  }

  void add_byte_level(SortedJson& json) const {
    const GgmlPattern& split = pattern();
    const SortedJson byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", split.pattern == nullptr}};
    SortedJson steps = SortedJson::array();
    if (split.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
    if (split.pattern != nullptr) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", split.pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
    steps.push_back(byte_level);
    json["normalizer"] = split.composes ? SortedJson{{"type", "NFC"}} : SortedJson(nullptr);
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
    json["post_processor"] = post_processor(split.adds_bos);
    json["decoder"] = byte_level;
    json["model"] = model_json(false, split.ignore_merges, vocabulary_.merges);
  }

  SortedJson model_json(bool byte_fallback, bool ignore_merges, SortedJson merges) const {
    const auto unknown = std::ranges::find(vocabulary_.kinds, Kind::unknown) - vocabulary_.kinds.begin();
    const bool has_unknown = byte_fallback && unknown < std::ssize(vocabulary_.kinds);
    return {
        {"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", has_unknown ? SortedJson(token(static_cast<int32_t>(unknown))) : SortedJson(nullptr)},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", byte_fallback},
        {"byte_fallback", byte_fallback},
        {"ignore_merges", ignore_merges},
        {"vocab", vocab_json()},
        {"merges", std::move(merges)}};
  }

  void add_sentencepiece(SortedJson& json) const {
    const std::string space(kMetaspace);
    const SortedJson replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", space}};
    SortedJson normalizers = SortedJson::array(), decoders = SortedJson::array();
    if (vocabulary_.add_space_prefix) normalizers.push_back({{"type", "Prepend"}, {"prepend", space}});
    normalizers.push_back(replace);
    decoders.push_back({{"type", "Replace"}, {"pattern", {{"String", space}}}, {"content", " "}});
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (vocabulary_.add_space_prefix)
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    json["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    json["pre_tokenizer"] = nullptr;
    json["post_processor"] = post_processor(true);
    json["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
    json["model"] = model_json(true, false, merges_by_score());
  }

  /// Returns the merges of a SentencePiece vocabulary: all pairs of tokens that form a token, those with the
  /// highest score first.
  SortedJson merges_by_score() const {
    Vocabulary vocabulary;
    std::vector<int32_t> order, rank(vocabulary_.tokens.size(), -1);
    for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
      const Kind kind = vocabulary_.kinds[i];
      if (is_padding(i) || (kind != Kind::normal && kind != Kind::unused)) continue;
      vocabulary.add(vocabulary_.tokens[i], static_cast<int64_t>(i), where_);
      order.push_back(static_cast<int32_t>(i));
    }
    std::ranges::stable_sort(order, std::greater(),
                             [&](int32_t id) { return vocabulary_.scores[static_cast<size_t>(id)]; });
    for (size_t i = 0; i < order.size(); ++i) rank[static_cast<size_t>(order[i])] = static_cast<int32_t>(i);
    std::vector<Merge> merges = merges_from_ranks(vocabulary, rank, where_);
    std::ranges::sort(merges, {}, [](const Merge& merge) {
      return std::array{merge.rank, merge.left, merge.right};
    });
    SortedJson pairs = SortedJson::array();
    for (const Merge& merge : merges) pairs.push_back({token(merge.left), token(merge.right)});
    return pairs;
  }

  const GgmlVocabulary& vocabulary_;
  const std::string& where_;
};

}  // namespace

std::string tokenizer_json(const GgmlVocabulary& vocabulary, const std::string& where) {
  return TokenizerJson(vocabulary, where).text();
}

std::string tokenizer_config_json(const GgmlVocabulary& vocabulary) {
  SortedJson json = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const auto add = [&](const char* role, std::optional<int32_t> id) {
    if (id) json[role] = vocabulary.tokens[static_cast<size_t>(*id)];
  };
  add("bos_token", vocabulary.bos);
  add("eos_token", vocabulary.eos);
  add("unk_token", vocabulary.unk);
  add("pad_token", vocabulary.pad);
  return json.dump(2) + "\n";
}

}  // namespace hearth::text
