#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// Treatment of special tokens that occur in a text: encoded as plain text or as tokens. Added tokens that
/// are not special ("<think>", runs of spaces) are always matched as tokens, as in transformers.
enum class SpecialTokens { as_text, parsed };

/// Ids of special tokens by role. `prefix`, `suffix`: ids that the tokenizer's post-processor puts before and
/// after a text.
struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> pad;
  std::optional<int32_t> unk;
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

/// Converts text to token ids and back. Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text`, without prefix or suffix. Bytes that are not UTF-8 are encoded as byte tokens
  /// if the vocabulary has them; otherwise as the unknown token, or a UserError is thrown if there is none.
  virtual void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const = 0;
  /// Returns the bytes of `ids`. Special tokens are written as text, ids without a token are skipped. The
  /// result may end within a character.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Returns the largest id plus 1.
  virtual int64_t vocab_size() const = 0;
  /// Returns the id of a token, given as in the tokenizer's file ("<|eot_id|>", in UTF-8); nothing if there
  /// is none.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Returns the token of an id, written as in the tokenizer's file; empty if there is none.
  virtual std::string token(int32_t) const { return {}; }
  /// True for ids of special tokens, such as BOS, EOS and role markers.
  virtual bool is_special(int32_t) const { return false; }

  const SpecialIds& special() const { return special_; }
  std::optional<int32_t> bos() const { return special_.bos; }
  std::optional<int32_t> eos() const { return special_.eos; }
  std::optional<int32_t> pad() const { return special_.pad; }

 protected:
  SpecialIds special_;
};

}  // namespace hearth::text
