#pragma once

#include <optional>
#include <unordered_map>

#include "base/function_ref.h"
#include "text/normalizer.h"
#include "text/string_set.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// A token that is searched for in the raw or normalized text before the text is split. The fields are those
/// of AddedToken in Hugging Face's tokenizers.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  /// True if the token also consumes the white space on its left (lstrip) or right (rstrip).
  bool lstrip = false;
  bool rstrip = false;
  /// True to search in the normalized text, false to search in the raw text.
  bool normalized = false;
  /// With `normalized`: true if `content` is normalized already.
  bool normal_form = false;
  /// True if the token matches only where no \w of Rust's regular expressions is adjacent to it.
  bool single_word = false;
};

/// The added tokens of a tokenizer. Finds them by content, by id, and in a text.
class AddedTokens {
 public:
  using Part = FunctionRef<void(std::string_view text, const AddedToken* token)>;

  AddedTokens() = default;
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;
  /// Indexes the tokens. The contents of `normalized` tokens are normalized by `normalizer` first.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  /// Splits a raw text at the tokens with `normalized` == false. Calls part(text, null) for each nonempty
  /// text between tokens and part(matched, token) for each token, in order.
  void split_raw(std::string_view text, SpecialTokens special, Part part) const {
    split(raw_, text, special, part);
  }
  /// Splits a normalized text at the tokens with `normalized` == true; calls `part` like split_raw.
  void split_normalized(std::string_view text, SpecialTokens special, Part part) const {
    split(normalized_, text, special, part);
  }
  /// Returns the token, or null if there is none.
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int32_t id) const;
  /// Returns the largest id plus 1; 0 if there are no added tokens.
  int64_t end() const;

 private:
  void split(const StringSet& set, std::string_view text, SpecialTokens special, Part part) const;
  /// Returns the byte range of a match including the white space that the token consumes (lstrip, rstrip), or
  /// nothing if it is not a valid match. `from` is the end of the previous token.
  std::optional<Range> extent(const AddedToken& token, std::string_view text, Range match, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  StringSet raw_;
  StringSet normalized_;
};

}  // namespace hearth::text
