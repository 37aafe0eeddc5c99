#include "text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/regex_syntax.h"

namespace hearth::text {
namespace {

bool is_word(Character character) {
  static const Regex word(fmt::format("[{}]", kRustWord), "tokenizer");
  thread_local RegexScratch scratch;
  if (!character.valid) return false;
  std::string text;
  append_utf8(text, character.value);
  MatchTime time(text.size());
  return word.find(text, 0, scratch, time).has_value();
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer& normalizer)
    : tokens_(std::move(tokens)) {
  RegexScratch scratch;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    by_content_.emplace(tokens_[i].content, i);
    by_id_.emplace(tokens_[i].id, i);
    if (tokens_[i].normalized) {
      std::string spelled = tokens_[i].content;
      if (!tokens_[i].normal_form) normalizer.apply(spelled, scratch);
      normalized_.add(spelled, i);
    } else {
      raw_.add(tokens_[i].content, i);
    }
  }
  raw_.finish();
  normalized_.finish();
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(int32_t id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

int64_t AddedTokens::end() const {
  int64_t end = 0;
  for (const AddedToken& token : tokens_) end = std::max(end, int64_t{token.id} + 1);
  return end;
}

std::optional<Range> AddedTokens::extent(const AddedToken& token, std::string_view text, Range match,
                                         size_t from) const {
  const auto before = [&] { return text.substr(0, match.begin); };
  const auto after = [&] { return text.substr(match.end); };
  if (token.single_word) {
    if (!before().empty() && is_word(last_character(before()))) return std::nullopt;
    if (!after().empty() && is_word(first_character(after()))) return std::nullopt;
  }
  while (token.lstrip && match.begin > from && is_space(last_character(before()))) {
    match.begin -= last_character(before()).bytes;
  }
  while (token.rstrip && !after().empty() && is_space(first_character(after()))) {
    match.end += first_character(after()).bytes;
  }
  return match;
}

void AddedTokens::split(const StringSet& set, std::string_view text, SpecialTokens special, Part part) const {
  const auto allowed = [&](size_t index) {
    return special == SpecialTokens::parsed || !tokens_[index].special;
  };
  size_t done = 0;
  for (size_t at = 0; !set.empty() && at < text.size();) {
    const bool may_start = set.may_start(text[at]);
    const auto found = may_start ? set.longest_prefix(text.substr(at), allowed) : std::nullopt;
    if (!found) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found->index];
    const Range match = {at, at + found->bytes};
    at = match.end;
    const std::optional<Range> taken = extent(token, text, match, done);
    if (!taken) continue;
    if (taken->begin > done) part(text.substr(done, taken->begin - done), nullptr);
    part(text.substr(taken->begin, taken->end - taken->begin), &token);
    at = done = taken->end;
  }
  if (done < text.size()) part(text.substr(done), nullptr);
}

}  // namespace hearth::text
