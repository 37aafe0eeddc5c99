#pragma once

#include <memory>
#include <mutex>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/pre_tokenizer.h"

namespace hearth::text {

/// Components of a tokenizer, named as in tokenizer.json, in the order in which they are applied.
struct Parts {
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Model model;
  Decoder decoder;
  SpecialIds special;
};

/// A tokenizer composed of Parts. All file formats except SentencePiece's unigram models use it.
class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(Parts parts);
  ~Pipeline() override;

  void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  int64_t vocab_size() const override;
  std::optional<int32_t> id_of(std::string_view token) const override;
  std::string token(int32_t id) const override;
  bool is_special(int32_t id) const override;

 private:
  struct Scratch;
  class ScratchLease;
  /// Encodes a text without raw added tokens. `start`: number of bytes at the start of `text` that come from
  /// the first character of the user's text.
  void encode_raw(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                  std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                         std::vector<int32_t>& ids) const;

  Normalizer normalizer_;
  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  Model model_;
  Decoder decoder_;
  /// Guards scratch_pool_, which grows to the number of threads that encode at the same time.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> scratch_pool_;
};

}  // namespace hearth::text
