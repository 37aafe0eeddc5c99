#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace hearth::text {

/// Ids 0 to 255 are the bytes; then come the words, then the special tokens. Takes the longest word that
/// starts where it stands, special tokens only where they are parsed.
class ToyTokenizer : public Tokenizer {
 public:
  enum class Start { as_is, blank };  ///< blank: one goes before every text, as SentencePiece does it

  explicit ToyTokenizer(std::vector<std::string> words, std::vector<std::string> special = {},
                        Start start = Start::as_is)
      : words_(std::move(words)), special_words_(std::move(special)), start_(start) {}

  void encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const override {
    const std::string whole = (start_ == Start::blank && !text.empty() ? " " : "") + std::string(text);
    for (std::string_view rest = whole; !rest.empty();) {
      const int32_t id = longest(rest, special);
      rest.remove_prefix(decode(std::vector<int32_t>{id}).size());
      ids.push_back(id);
    }
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      const auto word = static_cast<size_t>(id - 256);
      if (id < 256) {
        text += static_cast<char>(id);
      } else {
        text += word < words_.size() ? words_[word] : special_words_.at(word - words_.size());
      }
    }
    return text;
  }

  int64_t vocab_size() const override { return 256 + std::ssize(words_) + std::ssize(special_words_); }

  std::optional<int32_t> id_of(std::string_view token) const override {
    for (int32_t id = 0; id < vocab_size(); ++id) {
      if (decode(std::vector<int32_t>{id}) == token) return id;
    }
    return std::nullopt;
  }

  std::string token(int32_t id) const override { return decode(std::vector<int32_t>{id}); }
  bool is_special(int32_t id) const override { return id >= 256 + std::ssize(words_); }

 private:
  int32_t longest(std::string_view rest, SpecialTokens special) const {
    size_t best_size = 1;
    auto best = static_cast<int32_t>(static_cast<uint8_t>(rest[0]));
    const size_t num_words = words_.size() + (special == SpecialTokens::parsed ? special_words_.size() : 0);
    for (size_t i = 0; i < num_words; ++i) {
      const std::string& word = i < words_.size() ? words_[i] : special_words_[i - words_.size()];
      if (word.size() > best_size && rest.starts_with(word)) {
        best_size = word.size();
        best = static_cast<int32_t>(256 + i);
      }
    }
    return best;
  }

  std::vector<std::string> words_;
  std::vector<std::string> special_words_;
  Start start_;
};

}  // namespace hearth::text
