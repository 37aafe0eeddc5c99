#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hearth::infer {

/// Converts the tokens of an answer to text, one by one. Each piece of text is returned as soon as no later
/// token can change it: complete UTF-8 characters that cannot be the start of a stop text.
class AnswerText {
 public:
  /// `tokenizer`: if null, all texts are empty. `prompt`: the tokens before the answer; the text of the first
  /// tokens of the answer may depend on them. `stops`: stop texts; the text of the answer ends before the
  /// first one that occurs.
  AnswerText(const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
             std::vector<std::string> stops);

  /// Adds a token and returns the new piece of text, which is valid until the next call.
  std::string_view add(int32_t id);
  /// Returns the remaining text. Call after the last token.
  std::string_view finish();
  /// True if a stop text was found; no more tokens may be added.
  bool is_stopped() const { return is_stopped_; }
  /// Returns the text that was returned so far.
  std::string_view text() const { return std::string_view(text_).substr(0, num_returned_); }

 private:
  std::string_view advance_to(size_t end);
  size_t safe_end() const;

  const text::Tokenizer* tokenizer_;
  std::vector<std::string> stops_;
  std::vector<int32_t> ids_;  ///< last tokens of prompt and answer, which are decoded together
  size_t context_bytes_ = 0;  ///< number of bytes of the text of ids_ that precede text_[num_settled_]
  size_t num_settled_ = 0;    ///< number of bytes of text_ that later tokens cannot change
  std::string text_;          ///< the text of the answer so far
  size_t num_returned_ = 0;   ///< number of bytes of text_ that were returned
  bool is_stopped_ = false;
};

}  // namespace hearth::infer
