#include "text/bpe.h"

#include <bit>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"

namespace hearth::text {
namespace {

// BPE takes the candidates for merges from a heap, and keeps the symbols in a linked list. A merge adds at
// most two candidates, so a piece of n symbols takes O(n log n) time, not the O(n^2) of a search for the
// lowest rank per merge. A candidate that a neighboring merge has invalidated stays in the heap and is
// skipped when popped.
constexpr size_t kMaxPieceBytes = size_t{1} << 30;
constexpr size_t kMaxRankedBytes = 1024;

/// Returns a character in quotes, or its first byte in hexadecimal if it is not printable, for messages.
std::string shown(std::string_view character) {
  const bool printable = character.size() == 1 && character[0] > ' ' && character[0] <= '~';
  const bool wide = character.size() > 1 && first_character(character).valid;
  if (printable || wide) return fmt::format("'{}'", character);
  return fmt::format("the byte 0x{:02X}", static_cast<uint8_t>(character[0]));
}

/// True if the token contains the end of a word and the start of the next one, in SentencePiece's spelling of
/// spaces. If no token does, each word can be merged separately.
bool spans_words(std::string_view token) {
  const size_t end_of_spaces = [&] {
    size_t at = 0;
    while (token.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
    return at;
  }();
  return token.find(kMetaspace, end_of_spaces) != std::string_view::npos;
}

/// Returns the number of bytes of the first word of `text`, including the spaces before it.
size_t word_bytes(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with(kMetaspace)) at += kMetaspace.size();
  return std::min(text.find(kMetaspace, at), text.size());
}

}  // namespace

MergeTable::MergeTable(const std::vector<Merge>& merges)
    : slots_(std::bit_ceil(2 * merges.size() + 2), Merge{.left = -1, .right = -1}), mask_(slots_.size() - 1) {
  for (const Merge& merge : merges) {
    size_t slot = first_slot(merge.left, merge.right);
    while (slots_[slot].left >= 0 && (slots_[slot].left != merge.left || slots_[slot].right != merge.right)) {
      slot = (slot + 1) & mask_;
    }
    slots_[slot] = merge;
  }
}

Bpe::Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, std::string_view where)
    : vocabulary_(std::move(vocabulary)),
      merges_(merges),
      options_(std::move(options)),
      where_(where),
      split_words_(no_token_spans_words(merges)) {
  find_bytes(where);
}

void Bpe::find_bytes(std::string_view where) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    const std::optional<int32_t> id = options_.byte_level ? vocabulary_.find(std::string_view(&raw, 1))
                                                          : vocabulary_.find(fmt::format("<0x{:02X}>", byte));
    byte_ids_[byte] = id.value_or(-1);
    if (!id && options_.byte_fallback) {
      user_error("{}: byte_fallback needs the tokens <0x00> to <0xFF>, but <0x{:02X}> is missing", where,
                 byte);
    }
  }
}

bool Bpe::no_token_spans_words(const std::vector<Merge>& merges) const {
  if (options_.byte_level || options_.ignore_merges || !options_.end_of_word_suffix.empty()) return false;
  if (!vocabulary_.find(kMetaspace)) return false;
  return std::none_of(merges.begin(), merges.end(),
                      [&](const Merge& merge) { return spans_words(vocabulary_.token(merge.merged)); });
}

void Bpe::encode(std::string_view piece, PieceCache& cache, BpeScratch& scratch,
                 std::vector<int32_t>& ids) const {
  if (piece.size() > kMaxPieceBytes) {
    user_error("{}: a word of {} bytes is longer than {}; split the text", where_, piece.size(),
               kMaxPieceBytes);
  }
  if (!split_words_) return encode_word(piece, cache, scratch, ids);
  while (!piece.empty()) {
    const size_t length = word_bytes(piece);
    encode_word(piece.substr(0, length), cache, scratch, ids);
    piece.remove_prefix(length);
  }
}

void Bpe::encode_word(std::string_view word, PieceCache& cache, BpeScratch& scratch,
                      std::vector<int32_t>& ids) const {
  const bool fits = PieceCache::fits(word);
  if (fits && cache.append(word, ids)) return;
  const size_t begin = ids.size();
  const std::optional<int32_t> whole = options_.ignore_merges ? vocabulary_.find(word) : std::nullopt;
  if (whole) {
    ids.push_back(*whole);
  } else {
    start(word, scratch);
    merge_all(scratch);
    for (const BpeScratch::Symbol& symbol : scratch.symbols) {
      if (symbol.id >= 0) ids.push_back(symbol.id);
    }
  }
  if (fits) cache.store(word, std::span(ids).subspan(begin));
}

void Bpe::start(std::string_view word, BpeScratch& scratch) const {
  scratch.symbols.clear();
  bool unknown = false;
  while (!word.empty()) {
    const size_t length = options_.byte_level ? 1 : first_character(word).bytes;
    start_character(word.substr(0, length), length == word.size(), scratch, unknown);
    word.remove_prefix(length);
  }
  const auto count = static_cast<int32_t>(scratch.symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    scratch.symbols[static_cast<size_t>(i)].previous = i - 1;
    scratch.symbols[static_cast<size_t>(i)].next = i + 1 < count ? i + 1 : -1;
  }
}

void Bpe::start_character(std::string_view character, bool last, BpeScratch& scratch, bool& unknown) const {
  const auto push = [&](int32_t id) { scratch.symbols.push_back({id, -1, -1}); };
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  const bool after_unknown = std::exchange(unknown, false);
  if (last && !options_.end_of_word_suffix.empty()) {
    scratch.lookup.assign(character).append(options_.end_of_word_suffix);
    character = scratch.lookup;
  } else if (options_.byte_level && byte_id(character[0]) >= 0) {
    return push(byte_id(character[0]));
  }
  if (const std::optional<int32_t> id = vocabulary_.find(character)) return push(*id);
  if (options_.byte_fallback) {
    for (const char byte : character) push(byte_id(byte));
  } else if (options_.unk) {
    if (!after_unknown || !options_.fuse_unk) push(*options_.unk);
    unknown = true;
  } else {
    user_error("{}: the vocabulary has no token for {}, which the text has; delete it from the text", where_,
               shown(character));
  }
}

void Bpe::offer(BpeScratch& scratch, int32_t symbol_index) const {
  if (symbol_index < 0) return;
  const BpeScratch::Symbol& left = scratch.symbols[static_cast<size_t>(symbol_index)];
  if (left.next < 0) return;
  const Merge* merge = merges_.find(left.id, scratch.symbols[static_cast<size_t>(left.next)].id);
  if (merge == nullptr) return;
  const uint64_t rank = static_cast<uint32_t>(merge->rank);
  scratch.heap.push_back({rank << 32 | static_cast<uint32_t>(symbol_index), merge->merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end());
}

void Bpe::merge_all(BpeScratch& scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch.symbols;
  scratch.heap.clear();
  for (int32_t symbol_index = 0; symbol_index < std::ssize(symbols); ++symbol_index)
    offer(scratch, symbol_index);
  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end());
    const BpeScratch::Candidate best = scratch.heap.back();
    scratch.heap.pop_back();
    const auto symbol_index = static_cast<int32_t>(best.rank_and_index & 0xFFFFFFFFU);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(symbol_index)];
    if (left.id < 0 || left.next < 0) continue;
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // Skip stale candidates: a neighbor may have merged after this one was pushed.
    const Merge* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->merged != best.merged) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = symbol_index;
    offer(scratch, left.previous);
    offer(scratch, symbol_index);
  }
}

std::vector<Merge> merges_from_ranks(const Vocabulary& vocabulary, std::span<const int32_t> rank,
                                     std::string_view where) {
  std::vector<Merge> merges;
  const auto takes_part = [&](std::optional<int32_t> id) {
    return id && rank[static_cast<size_t>(*id)] >= 0;
  };
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (rank[static_cast<size_t>(id)] < 0) continue;
    const std::string_view token = vocabulary.token(id);
    if (token.size() > kMaxRankedBytes) {
      user_error("{}: expected tokens of at most {} bytes, got one of {} for {}", where, kMaxRankedBytes,
                 token.size(), id);
    }
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const std::optional<int32_t> left = vocabulary.find(token.substr(0, cut));
      if (!takes_part(left)) continue;
      const std::optional<int32_t> right = vocabulary.find(token.substr(cut));
      if (takes_part(right)) merges.push_back({*left, *right, rank[static_cast<size_t>(id)], id});
    }
  }
  return merges;
}

}  // namespace hearth::text
