#include "text/decoder.h"

#include <array>
#include <charconv>

#include "text/normalizer.h"

namespace hearth::text {
namespace {

using TokenTexts = std::vector<std::string>;

void join_byte(std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error == std::errc() && end == token.data() + 5) token.assign(1, static_cast<char>(byte));
}

/// Applies the English clean-up rules of Hugging Face's WordPiece decoder, in the same order.
void clean_up(std::string& token) {
  constexpr std::array<std::array<const char*, 2>, 11> kRules = {{{" .", "."},
                                                                  {" ?", "?"},
                                                                  {" !", "!"},
                                                                  {" ,", ","},
                                                                  {" ' ", "'"},
                                                                  {" n't", "n't"},
                                                                  {" 'm", "'m"},
                                                                  {" do not", " don't"},
                                                                  {" 's", "'s"},
                                                                  {" 've", "'ve"},
                                                                  {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(token, from, to, token.size());
}

struct Apply {
  TokenTexts& tokens;

  void operator()(const Replace& step) const {
    RegexScratch scratch;
    for (std::string& token : tokens) step.apply(token, scratch, max_grown_bytes(token.size()));
  }
  void operator()(const JoinBytes&) const {
    for (std::string& token : tokens) join_byte(token);
  }
  void operator()(const Fuse&) const {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.assign(1, std::move(all));
  }
  void operator()(const StripTokens& step) const {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < step.left && rest.starts_with(step.content); ++i)
        rest.remove_prefix(step.content.size());
      for (int64_t i = 0; i < step.right && rest.ends_with(step.content); ++i)
        rest.remove_suffix(step.content.size());
      token = std::string(rest);
    }
  }
  void operator()(const MetaspaceToSpace& step) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      const bool strip = i == 0 && step.strip_first;
      replace_all(tokens[i], step.replacement, strip ? "" : " ", tokens[i].size());
    }
  }
  void operator()(const SuffixToSpace& step) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      replace_all(tokens[i], step.suffix, i + 1 < tokens.size() ? " " : "", tokens[i].size());
    }
  }
  void operator()(const JoinWordPieces& step) const {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i].starts_with(step.prefix)) {
        tokens[i].erase(0, step.prefix.size());
      } else if (i > 0) {
        tokens[i].insert(0, 1, ' ');
      }
      if (step.cleanup) clean_up(tokens[i]);
    }
  }
  void operator()(const Separate&) const {
    for (size_t i = 1; i < tokens.size(); ++i) tokens[i].insert(0, 1, ' ');
  }
};

}  // namespace

std::string Decoder::decode(TokenTexts tokens) const {
  for (const DecoderStep& step : steps_) std::visit(Apply{tokens}, step);
  if (tokens.size() == 1) return std::move(tokens[0]);
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

}  // namespace hearth::text
