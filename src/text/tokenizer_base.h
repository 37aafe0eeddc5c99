#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// What the string of a special token means inside a text: its letters, or the token. Added tokens that are
/// not special ("<think>", runs of spaces) belong to the vocabulary and are found either way, as in
/// transformers.
enum class SpecialTokens { as_text, parsed };

/// Ids by role, and those that the tokenizer's own post-processor puts around a plain text.
struct SpecialIds {
  std::optional<int32_t> bos;
  std::optional<int32_t> eos;
  std::optional<int32_t> pad;
  std::optional<int32_t> unk;
  std::vector<int32_t> prefix;
  std::vector<int32_t> suffix;
};

/// Text to ids and back. Immutable; any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Appends the ids of `text`, without prefix or suffix. Bytes that are not UTF-8 come back from decode
  /// where the vocabulary has bytes; where it lacks them, the unknown token stands for them, or UserError.
  virtual void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const = 0;
  /// The bytes of `ids`; special tokens as text, ids without a token as nothing. May end within a character.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// One more than the largest id.
  virtual int64_t vocab_size() const = 0;
  /// The id of a token spelled as in its file ("<|eot_id|>", in UTF-8), or nothing.
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// The token of an id spelled as in its file; empty when there is none.
  virtual std::string token(int32_t) const { return {}; }
  virtual bool is_special(int32_t) const { return false; }

  const SpecialIds& special() const { return special_; }
  std::optional<int32_t> bos() const { return special_.bos; }
  std::optional<int32_t> eos() const { return special_.eos; }
  std::optional<int32_t> pad() const { return special_.pad; }

 protected:
  SpecialIds special_;
};

}  // namespace hearth::text
