#pragma once

#include <memory>
#include <mutex>

#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/pre_tokenizer.h"

namespace hearth::text {

/// The parts of a tokenizer as tokenizer.json names them, in the order in which a text meets them.
struct Parts {
  std::vector<AddedToken> added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Model model;
  Decoder decoder;
  SpecialIds special;
};

/// A tokenizer made of its parts; all file formats but SentencePiece's unigram models end here.
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
  class Lease;
  /// `start`: how many bytes at its start come of the first character of what the user gave.
  void encode_raw(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                  std::vector<int32_t>& ids) const;
  void encode_normalized(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                         std::vector<int32_t>& ids) const;

  Normalizer normalizer_;
  AddedTokens added_;
  PreTokenizer pre_tokenizer_;
  Model model_;
  Decoder decoder_;
  /// Working memory not in use; one is made for each thread that encodes at the same time.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace hearth::text
