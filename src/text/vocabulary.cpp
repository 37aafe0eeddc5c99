#include "text/vocabulary.h"

#include "base/error.h"
#include "base/hash.h"

namespace hearth::text {

size_t Vocabulary::Hash::operator()(std::string_view text) const { return hash64(text); }

void Vocabulary::claim(std::string_view token, int64_t id, std::string_view where) {
  if (id < 0 || id > kMaxId) {
    user_error("{}: expected token ids from 0 to {}, got {} for '{}'", where, kMaxId, id, token);
  }
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  if (tokens_[index].data() != nullptr) {
    user_error("{0}: id {3} has two tokens, '{1}' and '{2}'", where, tokens_[index], token, id);
  }
}

void Vocabulary::add(std::string_view token, int64_t id, std::string_view where) {
  claim(token, id, where);
  const auto [entry, is_new] = ids_.emplace(token, static_cast<int32_t>(id));
  if (!is_new) user_error("{}: the token '{}' occurs twice", where, token);
  tokens_[static_cast<size_t>(id)] = entry->first;
}

void Vocabulary::add_hidden(std::string_view token, int64_t id, std::string_view where) {
  claim(token, id, where);
  tokens_[static_cast<size_t>(id)] = hidden_.emplace(static_cast<int32_t>(id), token).first->second;
}

void Vocabulary::check_lengths(std::string_view where) const {
  constexpr size_t kMaxBytes = 1024;
  for (int32_t id = 0; id < size(); ++id) {
    if (token(id).size() > kMaxBytes) {
      user_error("{}: expected tokens of at most {} bytes, got one of {} for {}", where, kMaxBytes,
                 token(id).size(), id);
    }
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::string_view Vocabulary::token(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  return tokens_[static_cast<size_t>(id)];
}

}  // namespace hearth::text
