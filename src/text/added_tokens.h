#pragma once

#include <optional>
#include <unordered_map>

#include "base/function_ref.h"
#include "text/normalizer.h"
#include "text/string_set.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// A token found in the text itself, before it is split; the flags are those of Hugging Face's AddedToken.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;
  /// Takes the spaces to its left, to its right.
  bool lstrip = false;
  bool rstrip = false;
  /// Looked for in the normalized text rather than in the raw one.
  bool normalized = false;
  /// With `normalized`: the content is in its normalized form already.
  bool normal_form = false;
  /// Only where no \w of Rust's regular expressions touches it.
  bool single_word = false;
};

/// The added tokens of a tokenizer, by content, by id, and in a text.
class AddedTokens {
 public:
  using Part = FunctionRef<void(std::string_view text, const AddedToken* token)>;

  AddedTokens() = default;
  AddedTokens(AddedTokens&&) = default;
  AddedTokens& operator=(AddedTokens&&) = default;
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer);

  /// Cuts a raw text at the tokens that are not `normalized`: calls part(text, null) for what lies between,
  /// which is never empty, and part(matched, token) for each token.
  void split_raw(std::string_view text, SpecialTokens special, Part part) const {
    split(raw_, text, special, part);
  }
  /// The same in a normalized text, at those that are.
  void split_normalized(std::string_view text, SpecialTokens special, Part part) const {
    split(normalized_, text, special, part);
  }
  /// Null when there is none.
  const AddedToken* find(std::string_view content) const;
  const AddedToken* find(int32_t id) const;
  /// One more than the largest id, or 0.
  int64_t end() const;

 private:
  void split(const StringSet& set, std::string_view text, SpecialTokens special, Part part) const;
  /// The bytes of the token together with the spaces it takes; `from` is where the last one ended.
  std::optional<Range> extent(const AddedToken& token, std::string_view text, Range match, size_t from) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<std::string_view, size_t> by_content_;
  std::unordered_map<int32_t, size_t> by_id_;
  StringSet raw_;
  StringSet normalized_;
};

}  // namespace hearth::text
