#include "text/word_models.h"

#include "base/error.h"
#include "base/utf8.h"

namespace hearth::text {
namespace {

int32_t unknown_id(std::optional<int32_t> unk, std::string_view where) {
  if (unk) return *unk;
  user_error("{}: the text has an unknown word, but the vocabulary has no 'unk_token'", where);
}

bool has_more_characters(std::string_view text, int64_t limit) {
  int64_t count = 0;
  for (; !text.empty() && count <= limit; ++count) text.remove_prefix(first_character(text).bytes);
  return count > limit;
}

}  // namespace

void WordLevel::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  const std::optional<int32_t> id = vocabulary_.find(piece);
  ids.push_back(id ? *id : unknown_id(unk_, where_));
}

WordPiece::WordPiece(Vocabulary vocabulary, WordPieceOptions options, std::string_view where)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)), where_(where) {
  vocabulary_.check_lengths(where);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view token = vocabulary_.token(id);
    starts_.add(token, static_cast<size_t>(id));
    if (token.starts_with(options_.prefix))
      continuations_.add(token.substr(options_.prefix.size()), static_cast<size_t>(id));
  }
  starts_.finish();
  continuations_.finish();
}

bool WordPiece::encode_known(std::string_view piece, std::vector<int32_t>& ids) const {
  if (has_more_characters(piece, options_.max_characters)) return false;
  const StringSet* set = &starts_;
  while (!piece.empty()) {
    const auto longest = set->longest_prefix(piece, [](size_t) { return true; });
    if (!longest) return false;
    ids.push_back(static_cast<int32_t>(longest->index));
    piece.remove_prefix(longest->bytes);
    set = &continuations_;
  }
  return true;
}

void WordPiece::encode(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const {
  const bool fits = PieceCache::fits(piece);
  if (fits && cache.append(piece, ids)) return;
  const size_t begin = ids.size();
  if (!encode_known(piece, ids)) {
    ids.resize(begin);
    ids.push_back(unknown_id(options_.unk, where_));
  }
  if (fits) cache.store(piece, std::span(ids).subspan(begin));
}

}  // namespace hearth::text
