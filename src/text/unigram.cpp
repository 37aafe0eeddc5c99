#include "text/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace hearth::text {
namespace {

constexpr size_t kMaxPieceBytes = size_t{1} << 30;
constexpr double kUnknownPenalty = 10;

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<int32_t> unk,
                 bool byte_fallback, std::string_view where)
    : vocabulary_(std::move(vocabulary)),
      scores_(std::move(scores)),
      unknown_score_(*std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty),
      unk_(unk),
      byte_fallback_(byte_fallback),
      where_(where) {
  vocabulary_.check_lengths(where);
  for (size_t byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(-1);
  for (int32_t id = 0; id < vocabulary_.size(); ++id)
    tokens_.add(vocabulary_.token(id), static_cast<size_t>(id));
  tokens_.finish();
}

int32_t Unigram::unknown() const {
  if (unk_) return *unk_;
  user_error("{}: the text has a character without a token, and there is no 'unk_id'; add one", where_);
}

// Computes the best segmentation of a piece by the Viterbi algorithm over byte offsets: scratch.best[i] is
// the best segmentation of the first i bytes.
void Unigram::find_best(std::string_view piece, UnigramScratch& scratch) const {
  scratch.best.assign(piece.size() + 1, {});
  for (size_t begin = 0; begin < piece.size();) {
    const double so_far = scratch.best[begin].score;
    // If scores are equal, keeps the segmentation found first, whose last token is the longest.
    const auto is_better = [&](size_t bytes, double score) {
      const UnigramScratch::Node& node = scratch.best[begin + bytes];
      return node.begin < 0 || score > node.score;
    };
    const auto set = [&](size_t bytes, double score, int32_t id) {
      scratch.best[begin + bytes] = {score, static_cast<int32_t>(begin), id};
    };
    const size_t character = first_character(piece.substr(begin)).bytes;
    bool has_character = false;
    tokens_.for_each_prefix(piece.substr(begin), [&](size_t id, size_t bytes) {
      const double score = scores_[id] + so_far;
      if (is_better(bytes, score)) set(bytes, score, static_cast<int32_t>(id));
      has_character |= bytes == character;
    });
    const double score = unknown_score_ + so_far;
    if (!has_character && is_better(character, score)) set(character, score, unknown());
    begin += character;
  }
}

void Unigram::collect_parts(UnigramScratch& scratch) const {
  scratch.parts.clear();
  for (auto end = static_cast<int32_t>(scratch.best.size()) - 1; end > 0;) {
    const UnigramScratch::Node& node = scratch.best[static_cast<size_t>(end)];
    const bool joins = node.id == unk_ && !scratch.parts.empty() && scratch.parts.back().id == unk_;
    if (joins) {
      scratch.parts.back().begin = node.begin;
    } else {
      scratch.parts.push_back({node.begin, end, node.id});
    }
    end = node.begin;
  }
}

void Unigram::append_unknown(std::string_view part, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (const std::optional<int32_t> id = vocabulary_.find(part)) return ids.push_back(*id);
  if (byte_fallback_ && std::all_of(part.begin(), part.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : part) ids.push_back(id_of(byte));
  } else {
    ids.push_back(unknown());
  }
}

void Unigram::encode(std::string_view piece, PieceCache& cache, UnigramScratch& scratch,
                     std::vector<int32_t>& ids) const {
  if (piece.size() > kMaxPieceBytes) {
    user_error("{}: a word of {} bytes is longer than {}; split the text", where_, piece.size(),
               kMaxPieceBytes);
  }
  const bool fits = PieceCache::fits(piece);
  if (fits && cache.append(piece, ids)) return;
  const size_t begin = ids.size();
  find_best(piece, scratch);
  collect_parts(scratch);
  for (auto part = scratch.parts.rbegin(); part != scratch.parts.rend(); ++part) {
    if (part->id != unk_) {
      ids.push_back(part->id);
    } else {
      const auto first = static_cast<size_t>(part->begin), last = static_cast<size_t>(part->end);
      append_unknown(piece.substr(first, last - first), ids);
    }
  }
  if (fits) cache.store(piece, std::span(ids).subspan(begin));
}

}  // namespace hearth::text
