#pragma once

#include <optional>
#include <unordered_map>

#include "base/function_ref.h"
#include "text/normalizer.h"
#include "text/string_set.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// A token outside of the model's rules, such as <|im_end|>: it is searched for in the raw or normalized text
/// before the text is split. Fields as in AddedToken of Hugging Face's tokenizers.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  /// True if the token also consumes the white space on its left (lstrip) or right (rstrip).
  bool lstrip = false;
  bool rstrip = false;
  /// True if the token is searched for in the normalized text; false: in the raw text.
  bool normalized = false;
  /// True if `content` needs no normalization before the search; used only if `normalized` is true.
  bool normal_form = false;
  /// True if the token matches only where no word character is adjacent to it (\w of Rust's regular
  /// expressions).
  bool single_word = false;
};

/// The added tokens of a tokenizer. Finds them by content, by id, and in a text.
class AddedTokens {
 public:
  using Part = FunctionRef<void(std::string_view text, const AddedToken* token)>;

  AddedTokens() = default;
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;
  /// Indexes the tokens for searching. The contents of tokens with `normalized` are normalized by
  /// `normalizer` first.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  /// Splits a raw text at the tokens whose `normalized` is false. Calls part(text, null) for each nonempty
  /// text between tokens, and part(matched text, token) for each token, in order.
  void split_raw(std::string_view text, SpecialTokens special, Part part) const {
    split(raw_, text, special, part);
  }
  /// Splits a normalized text at the tokens whose `normalized` is true; calls part() as split_raw() does.
  void split_normalized(std::string_view text, SpecialTokens special, Part part) const {
    split(normalized_, text, special, part);
  }
  /// Returns the token with a content or id; null if there is none.
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int32_t id) const;
  /// Returns the largest id of the tokens plus 1; 0 if there are no added tokens.
  int64_t end() const;

 private:
  void split(const StringSet& set, std::string_view text, SpecialTokens special, Part part) const;
  /// Returns the byte range of a match of `token`, extended by the white space that the token consumes
  /// (lstrip, rstrip), or nothing if single_word forbids the match. `from`: end of the previous token in the
  /// text.
  std::optional<Range> extent(const AddedToken& token, std::string_view text, Range match, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  StringSet raw_;
  StringSet normalized_;
};

}  // namespace hearth::text
