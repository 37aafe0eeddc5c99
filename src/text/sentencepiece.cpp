#include <sentencepiece_processor.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "text/formats.h"
#include "text/sentencepiece_model.h"

namespace hearth::text {
namespace {

using Piece = SentencePieceModel::Piece;
using PieceKind = SentencePieceModel::PieceKind;

/// Tokenizer that calls libsentencepiece. Bytes that are not UTF-8 become U+FFFD.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view model, std::string_view file, std::vector<AddedToken> added,
                         SpecialIds special)
      : added_(std::move(added), {}) {
    special_ = std::move(special);
    check(processor_.LoadFromSerializedProto(model), file);
  }

  void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const override {
    added_.split_raw(text, special, [&](std::string_view part, const AddedToken* token) {
      if (token != nullptr) return ids.push_back(token->id);
      std::vector<int> found;
      check(processor_.Encode(part, &found), "SentencePiece");
      ids.insert(ids.end(), found.begin(), found.end());
    });
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    std::vector<int> run;
    const auto flush = [&] {
      std::string decoded;
      if (!run.empty()) check(processor_.Decode(run, &decoded), "SentencePiece");
      text += decoded;
      run.clear();
    };
    for (const int32_t id : ids) {
      if (const AddedToken* added = added_.find(id)) {
        flush();
        text += added->content;
      } else if (id >= 0 && id < processor_.GetPieceSize()) {
        run.push_back(id);
      }
    }
    flush();
    return text;
  }

  int64_t vocab_size() const override { return std::max<int64_t>(processor_.GetPieceSize(), added_.end()); }

  std::optional<int32_t> id_of(std::string_view token) const override {
    if (const AddedToken* added = added_.find(token)) return added->id;
    const int id = processor_.PieceToId(token);
    if (processor_.IsUnknown(id)) return std::nullopt;
    return id;
  }

  std::string token(int32_t id) const override {
    if (const AddedToken* added = added_.find(id)) return added->content;
    return id >= 0 && id < processor_.GetPieceSize() ? processor_.IdToPiece(id) : "";
  }

  bool is_special(int32_t id) const override {
    const AddedToken* added = added_.find(id);
    return added != nullptr && added->special;
  }

 private:
  /// Throws a UserError if `status` is an error. Its type is that of the library, or absl::Status in later
  /// versions.
  static void check(const auto& status, std::string_view where) {
    if (!status.ok()) user_error("{}: {}", where, status.ToString());
  }

  sentencepiece::SentencePieceProcessor processor_;
  AddedTokens added_;
};

/// True if Bpe, with merges ordered by score, gives the same result as libsentencepiece: all characters of
/// pieces are pieces too, and the only normalization is the escaping of spaces.
bool is_plain_bpe(const SentencePieceModel& model) {
  if (model.kind != SentencePieceModel::Kind::bpe || !model.byte_fallback || model.space_as_suffix)
    return false;
  if (model.maps_characters || model.remove_extra_spaces || !model.escape_spaces) return false;
  std::vector<std::string_view> normal;
  for (const Piece& piece : model.pieces) {
    const bool has_space = piece.text.find(kMetaspace) != std::string::npos;
    if (piece.kind == PieceKind::unused || (piece.kind == PieceKind::user_defined && has_space)) return false;
    if (piece.kind == PieceKind::normal) normal.push_back(piece.text);
  }
  std::sort(normal.begin(), normal.end());
  return std::all_of(normal.begin(), normal.end(), [&](std::string_view text) {
    for (; !text.empty(); text.remove_prefix(first_character(text).bytes)) {
      const std::string_view character = text.substr(0, first_character(text).bytes);
      if (!std::binary_search(normal.begin(), normal.end(), character)) return false;
    }
    return true;
  });
}

/// Returns the rank of each normal piece in descending order of scores, equal for equal scores; -1 for other
/// pieces.
std::vector<int32_t> ranks_of(const SentencePieceModel& model) {
  std::vector<int32_t> order(model.pieces.size());
  std::iota(order.begin(), order.end(), 0);
  const auto score = [&](int32_t id) { return model.pieces[static_cast<size_t>(id)].score; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score(a) > score(b); });
  std::vector<int32_t> rank(order.size(), -1);
  int32_t next = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && score(order[i]) != score(order[i - 1])) ++next;
    const auto id = static_cast<size_t>(order[i]);
    if (model.pieces[id].kind == PieceKind::normal) rank[id] = next;
  }
  return rank;
}

/// Returns the added tokens of the config, followed by the control and unknown pieces of the model and, if
/// `user_defined`, its user-defined pieces.
std::vector<AddedToken> added_of(const SentencePieceModel& model, const TokenizerConfig& config,
                                 bool user_defined) {
  std::vector<AddedToken> added = config.added;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const Piece& piece = model.pieces[i];
    const bool special = piece.kind == PieceKind::control || piece.kind == PieceKind::unknown;
    if (!special && !(user_defined && piece.kind == PieceKind::user_defined)) continue;
    const auto same = [&](const AddedToken& token) { return token.content == piece.text; };
    if (std::any_of(added.begin(), added.end(), same)) continue;
    added.push_back({.content = piece.text,
                     .id = static_cast<int32_t>(i),
                     .special = special,
                     .normalized = !special,
                     .normal_form = true});
  }
  return added;
}

SpecialIds special_of(const std::vector<AddedToken>& added, TokenizerConfig config) {
  const auto set_default = [](std::optional<std::string>& role, const char* token) {
    if (!role) role = token;
  };
  set_default(config.bos, "<s>");
  set_default(config.eos, "</s>");
  set_default(config.unk, "<unk>");
  set_default(config.pad, "<pad>");
  SpecialIds special;
  set_roles(special, config, added, nullptr);
  const bool t5 = config.tokenizer_class == "T5Tokenizer";
  set_surroundings(special, config, !t5, t5);
  return special;
}

std::unique_ptr<Tokenizer> make_plain_bpe(const SentencePieceModel& model, std::string_view file, bool legacy,
                                          std::vector<AddedToken> added, SpecialIds special) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    vocabulary.add(model.pieces[i].text, static_cast<int64_t>(i), file);
  }
  const std::vector<Merge> merges = merges_from_ranks(vocabulary, ranks_of(model), file);
  const std::string space(kMetaspace);
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::vector<DecoderStep> decoder = {Replace{.pattern = {.literal = space}, .content = " "}, JoinBytes{},
                                      Fuse{}};
  if (model.add_dummy_prefix) decoder.emplace_back(StripTokens{.content = " ", .left = 1});
  if (model.add_dummy_prefix && !legacy) {
    pre_tokenizer.emplace_back(MetaspaceStep{space, MetaspaceStep::Prefix::first, false});
  } else {
    if (model.add_dummy_prefix) normalizer.emplace_back(Prepend{space});
    normalizer.emplace_back(Replace{.pattern = {.literal = " "}, .content = space});
  }
  return std::make_unique<Pipeline>(
      Parts{.added = std::move(added),
            .normalizer = Normalizer(std::move(normalizer)),
            .pre_tokenizer = PreTokenizer(std::move(pre_tokenizer)),
            .model = Bpe(std::move(vocabulary), merges, {.byte_fallback = true}, file),
            .decoder = Decoder(std::move(decoder)),
            .special = std::move(special)});
}

}  // namespace

std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, std::string_view file,
                                               const TokenizerConfig& config) {
  const SentencePieceModel model = parse_sentencepiece_model(bytes, file);
  const bool plain = is_plain_bpe(model);
  std::vector<AddedToken> added = added_of(model, config, plain);
  SpecialIds special = special_of(added, config);
  if (plain) return make_plain_bpe(model, file, config.legacy, std::move(added), std::move(special));
  return std::make_unique<SentencePieceTokenizer>(bytes, file, std::move(added), std::move(special));
}

}  // namespace hearth::text
