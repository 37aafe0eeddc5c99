#include "text/ggml_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "text/bpe.h"
#include "text/components_json.h"
#include "text/formats.h"
#include "text/ggml_patterns.h"
#include "text/sentencepiece_model.h"

namespace hearth::text {
namespace {

using Kind = GgmlVocabulary::Kind;

constexpr int64_t kMaxVocabularyBytes = int64_t{256} << 20;
/// Scores that llama.cpp's converter assigns to added and unused tokens, which merges never produce.
constexpr float kAddedScore = -1000, kUnusedScore = -10000;

/// True for tokens that llama.cpp's converter treats as special regardless of the tokenizer's files.
bool looks_special(std::string_view token) {
  if (token == "<pad>" || token == "<mask>") return true;
  if (token.starts_with("<|") && token.ends_with("|>")) return true;
  return token.starts_with("<unused") && token.ends_with('>');
}

std::string with_blanks(std::string token) {
  for (size_t at = 0; (at = token.find(kMetaspace, at)) != std::string::npos;)
    token.replace(at, kMetaspace.size(), " ");
  return token;
}

bool is_byte(std::string_view token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

class Builder {
 public:
  Builder(fs::path folder, int64_t size) : folder_(std::move(folder)), size_(static_cast<size_t>(size)) {
    made_.tokens.resize(size_);
    made_.kinds.assign(size_, Kind::unused);
    made_.scores.assign(size_, kUnusedScore);
  }

  GgmlVocabulary build() {
    const TokenizerConfig config = read_tokenizer_config(folder_);
    const fs::path json = folder_ / "tokenizer.json", model = folder_ / "tokenizer.model";
    const bool has_json = fs::exists(json);
    const nlohmann::json parsed = has_json ? read_json(json) : nlohmann::json();
    const JsonNode root(parsed, json.string());
    const bool byte_level = has_json && is_byte_level(root);
    if (fs::exists(model) && !byte_level) {
      read_sentencepiece(model, config);
    } else if (has_json) {
      if (byte_level && config.add_prefix_space) {
        user_error("{}: field 'add_prefix_space' is true, which llama.cpp does not support",
                   (folder_ / "tokenizer_config.json").string());
      }
      byte_level ? read_byte_level(root) : read_byte_fallback(root);
    } else {
      read_vocab_merges(config);
    }
    finish();
    return std::move(made_);
  }

 private:
  static bool is_byte_level(const JsonNode& root) {
    bool found = false;
    if (const auto node = root.find("pre_tokenizer"))
      for_each_in_sequence(*node, "pretokenizers",
                           [&](const JsonNode&, const std::string& type) { found |= type == "ByteLevel"; });
    return found;
  }

  void set(int64_t id, std::string token, Kind kind, float score) {
    if (id < 0 || id >= std::ssize(made_.tokens)) {
      user_error("{}: '{}' has the id {}, but the model has only {} tokens; use the model's own tokenizer",
                 folder_.string(), token, id, size_);
    }
    const auto index = static_cast<size_t>(id);
    made_.tokens[index] = std::move(token);
    made_.kinds[index] = kind;
    made_.scores[index] = score;
  }
  void set_added(const std::vector<AddedToken>& added, std::optional<std::string_view> unknown = {}) {
    for (const AddedToken& token : added) {
      if (token.content == unknown) {
        set(token.id, token.content, Kind::unknown, 0);
      } else if (token.special || looks_special(token.content)) {
        set(token.id, token.content, Kind::control, kAddedScore);
      } else {
        set(token.id, with_blanks(token.content), Kind::user_defined, kAddedScore);
      }
    }
  }
  static std::vector<AddedToken> added_of(const JsonNode& root) {
    std::vector<AddedToken> added;
    if (const auto list = root.find("added_tokens")) {
      for (const JsonNode& token : list->elements()) added.push_back(parse_added_token(token, std::nullopt));
    }
    return added;
  }
  void set_vocabulary(const JsonNode& vocab) {
    for (const auto& [token, id] : vocab.members())
      set(id.integer(0, Vocabulary::kMaxId), token, Kind::normal, 0);
  }

  void read_byte_level(const JsonNode& root) {
    const JsonNode model = root.at("model");
    if (model.string_or("type", "BPE") != "BPE")
      model.at("type").refuse("BPE with a ByteLevel pre_tokenizer");
    made_.model = "gpt2";
    made_.pre = split_of(root.at("pre_tokenizer"), model.boolean_or("ignore_merges", false));
    if (const auto node = root.find("normalizer")) {
      for_each_in_sequence(*node, "normalizers", [](const JsonNode& step, const std::string& type) {
        if (type != "NFC") step.at("type").refuse("NFC (llama.cpp supports no other)");
      });
    }
    set_vocabulary(model.at("vocab"));
    set_added(added_of(root));
    for (const JsonNode& merge : model.at("merges").elements()) made_.merges.push_back(merge_line(merge));
  }

  /// Returns a merge as "left right". If the merge is a pair, spaces in its tokens are written in GPT-2's
  /// alphabet.
  static std::string merge_line(const JsonNode& merge) {
    if (merge.json().is_string()) return merge.string();
    const std::vector<JsonNode> pair = merge.elements();
    if (pair.size() != 2) merge.refuse("two tokens");
    const auto spelled = [](std::string token) {
      for (size_t at = 0; (at = token.find(' ', at)) != std::string::npos;) token.replace(at, 1, "\xC4\xA0");
      return token;
    };
    return spelled(pair[0].string()) + " " + spelled(pair[1].string());
  }

  static std::string split_of(const JsonNode& node, bool ignore_merges) {
    std::optional<std::string> pattern;
    bool digits = false, by_gpt2 = false, known = true;
    for_each_in_sequence(node, "pretokenizers", [&](const JsonNode& step, const std::string& type) {
      if (type == "Split" && !pattern) {
        pattern = step.at("pattern").string_or("Regex", "");
      } else if (type == "Digits") {
        digits = step.boolean_or("individual_digits", false);
        known &= digits;
      } else if (type == "ByteLevel") {
        by_gpt2 = step.boolean_or("use_regex", true);
        known &= !step.boolean_or("add_prefix_space", true);
      } else {
        known = false;
      }
    });
    for (const GgmlPattern& one : ggml_patterns()) {
      const bool same = one.pattern == nullptr ? by_gpt2 && !pattern : !by_gpt2 && pattern == one.pattern;
      if (known && same && digits == one.digits && ignore_merges == one.ignore_merges) return one.name;
    }
    node.refuse("a pre_tokenizer that llama.cpp supports (of GPT-2, Llama 3, Qwen 2, Nemo or GPT-4o)");
  }

  void read_vocab_merges(const TokenizerConfig& config) {
    const fs::path vocab = folder_ / "vocab.json", merges = folder_ / "merges.txt";
    if (!fs::exists(vocab) || !fs::exists(merges)) {
      user_error(
          "{}: no tokenizer found (tokenizer.json, tokenizer.model of SentencePiece, or vocab.json and "
          "merges.txt)",
          folder_.string());
    }
    made_.model = "gpt2";
    made_.pre = config.tokenizer_class == "Qwen2Tokenizer" ? "qwen2" : "gpt-2";
    const nlohmann::json json = read_json(vocab);
    set_vocabulary(JsonNode(json, vocab.string()));
    set_added(config.added);
    const std::string lines = read_file(merges, kMaxVocabularyBytes);
    for (std::string_view rest = lines; !rest.empty();) {
      const std::string_view line = without_blank_end(take_line(rest));
      if (!line.empty() && !line.starts_with("#version")) made_.merges.emplace_back(line);
    }
  }

  void read_sentencepiece(const fs::path& file, const TokenizerConfig& config) {
    const std::string bytes = read_file(file, kMaxVocabularyBytes);
    if (is_tiktoken(bytes)) {
      user_error("{}: this is a file of tiktoken, not of SentencePiece; use tokenizer.json", file.string());
    }
    const SentencePieceModel model = parse_sentencepiece_model(bytes, file.string());
    if (model.kind != SentencePieceModel::Kind::bpe) {
      user_error("{}: the SentencePiece model is not of type BPE, the only one that llama.cpp supports",
                 file.string());
    }
    made_.model = "llama";
    made_.pre = "default";
    made_.add_space_prefix = model.add_dummy_prefix;
    for (size_t i = 0; i < model.pieces.size(); ++i) {
      const SentencePieceModel::Piece& piece = model.pieces[i];
      const auto kind = static_cast<Kind>(piece.kind);
      set(static_cast<int64_t>(i), kind == Kind::user_defined ? with_blanks(piece.text) : piece.text, kind,
          piece.score);
    }
    std::vector<AddedToken> more = config.added;
    std::erase_if(more, [&](const AddedToken& token) { return is_piece(model, token); });
    set_added(more);
  }
  /// True if the added token is a byte or an unknown or control piece of the model, so that the piece's kind
  /// is kept.
  static bool is_piece(const SentencePieceModel& model, const AddedToken& token) {
    const auto index = static_cast<size_t>(token.id);
    if (token.id < 0 || index >= model.pieces.size() || model.pieces[index].text != token.content)
      return false;
    const auto kind = static_cast<Kind>(model.pieces[index].kind);
    return kind == Kind::unknown || kind == Kind::control || kind == Kind::byte;
  }

  void read_byte_fallback(const JsonNode& root) {
    const JsonNode model = root.at("model");
    if (model.string_or("type", "BPE") != "BPE" || !model.boolean_or("byte_fallback", false))
      model.refuse("byte-level BPE, or SentencePiece BPE with byte_fallback (llama.cpp supports no other)");
    made_.model = "llama";
    made_.pre = "default";
    made_.add_space_prefix = adds_blank(root);
    const std::string unknown = model.string_or("unk_token", "<unk>");
    set_vocabulary(model.at("vocab"));
    for (size_t i = 0; i < size_; ++i) {
      if (is_byte(made_.tokens[i])) made_.kinds[i] = Kind::byte;
      if (made_.tokens[i] == unknown) made_.kinds[i] = Kind::unknown;
    }
    score_by_merges(model.at("merges"));
    set_added(added_of(root), unknown);
  }

  static bool adds_blank(const JsonNode& root) {
    bool found = false;
    if (const auto node = root.find("normalizer")) {
      for_each_in_sequence(*node, "normalizers",
                           [&](const JsonNode&, const std::string& type) { found |= type == "Prepend"; });
    }
    if (const auto node = root.find("pre_tokenizer")) {
      for_each_in_sequence(*node, "pretokenizers", [&](const JsonNode& step, const std::string& type) {
        found |= type == "Metaspace" && step.string_or("prepend_scheme", "always") != "never";
      });
    }
    return found;
  }

  /// Assigns scores to tokens so that llama.cpp merges as tokenizer.json does. SentencePiece applies the
  /// merge whose result has the highest score. tokenizer.json lists all pairs that form a token, best token
  /// first, so scores decrease from token to token.
  void score_by_merges(const JsonNode& merges) {
    std::unordered_map<std::string, size_t> ids;
    for (size_t i = 0; i < size_; ++i) {
      if (made_.kinds[i] == Kind::normal) ids.emplace(made_.tokens[i], i);
    }
    std::vector<bool> scored(size_);
    float score = 0;
    std::string last;
    for (const JsonNode& merge : merges.elements()) {
      std::string token = merge_line(merge);
      token.erase(token.find(' '), 1);
      if (token == last) continue;
      const auto found = ids.find(token);
      if (found == ids.end()) merge.refuse("a merge that forms a token of the vocabulary");
      if (scored[found->second])
        merges.refuse("all merges that form the same token to be adjacent, as in SentencePiece");
      scored[found->second] = true;
      made_.scores[found->second] = --score;
      last = std::move(token);
    }
    for (const auto& [token, id] : ids) {
      if (!scored[id]) made_.scores[id] = score - 1;
    }
  }

  void finish() {
    for (size_t i = 0; i < size_; ++i) {
      if (made_.tokens[i].empty()) made_.tokens[i] = fmt::format("[PAD{}]", i);
    }
    if (made_.model == "gpt2") made_.scores.clear();
  }

  fs::path folder_;
  size_t size_;
  GgmlVocabulary made_;
};

}  // namespace

GgmlVocabulary ggml_vocabulary(const fs::path& folder, int64_t vocab_size) {
  return Builder(folder, vocab_size).build();
}

}  // namespace hearth::text
