#include <algorithm>

#include "base/utf8.h"
#include "text/chat.h"

namespace hearth::text {
namespace {

using Ids = std::vector<int32_t>;

bool starts_with(std::span<const int32_t> ids, const Ids& start) {
  return ids.size() >= start.size() && std::equal(start.begin(), start.end(), ids.begin());
}

}  // namespace

MarkedEncoder::MarkedEncoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer), adds_blank_(false) {
  tokenizer_.encode("\n", SpecialTokens::parsed, anchor_);
  Ids alone, behind;
  tokenizer_.encode("a", SpecialTokens::parsed, alone);
  tokenizer_.encode("\na", SpecialTokens::parsed, behind);
  adds_blank_ = starts_with(behind, anchor_) &&
                !std::equal(behind.begin() + std::ssize(anchor_), behind.end(), alone.begin(), alone.end());
}

/// Tokenizes a part of a text. `is_continuation`: true if other text precedes the part. A tokenizer that
/// prepends a space would then add a wrong one, so the part is encoded after a newline, whose ids are
/// removed.
std::vector<int32_t> MarkedEncoder::encode_part(std::string_view text, bool is_continuation) const {
  Ids ids;
  if (is_continuation && adds_blank_) {
    tokenizer_.encode("\n" + std::string(text), SpecialTokens::parsed, ids);
    if (starts_with(ids, anchor_)) return Ids(ids.begin() + std::ssize(anchor_), ids.end());
    ids.clear();
  }
  tokenizer_.encode(text, SpecialTokens::parsed, ids);
  return ids;
}

/// Maps byte offsets of a text to positions in its token ids. The tokenizer reports no offsets, so the number
/// of ids before an offset is found by encoding the text before it; after_last() encodes only the text since
/// the previous offset.
class MarkedEncoder::Aligner {
 public:
  /// Position of a byte offset in the ids. `num_ids`: number of ids whose text ends at or before the offset.
  /// `inside`: true if the offset is inside the text of the next id.
  struct Position {
    size_t num_ids = 0;
    bool inside = false;
    bool operator==(const Position&) const = default;
  };

  Aligner(const MarkedEncoder& encoder, std::string_view text)
      : encoder_(encoder), text_(text), ids_(encoder.encode_part(text, false)) {}

  /// Returns the position of a byte offset. Call with increasing offsets.
  Position position_of(int64_t mark) {
    const auto byte = static_cast<size_t>(mark);
    if (byte == text_.size()) return {ids_.size()};
    if (byte <= done_bytes_) return done_;
    const Position position = after_last(byte).value_or(Position{.inside = true});
    done_ = position.inside ? from_start(byte) : position;
    done_bytes_ = byte;
    return done_;
  }
  Ids take() { return std::move(ids_); }

 private:
  /// Finds the position by encoding only the text since the previous offset, as a continuation or (correct
  /// after some special tokens) as the start of a text. Returns nothing if the resulting ids differ from
  /// those of the full text.
  std::optional<Position> after_last(size_t byte) const {
    if (done_.inside) return std::nullopt;
    for (const bool is_continuation : {true, false}) {
      const Ids part = encoder_.encode_part(text_.substr(done_bytes_, byte - done_bytes_), is_continuation);
      if (starts_with(std::span(ids_).subspan(done_.num_ids), part))
        return Position{done_.num_ids + part.size()};
    }
    return std::nullopt;
  }

  /// Finds the position by encoding all text before the offset. From the point where the resulting ids differ
  /// from those of the full text, compares the sizes of decoded ids in bytes.
  Position from_start(size_t byte) const {
    const Ids start = encoder_.encode_part(text_.substr(0, byte), false);
    const auto parted = std::mismatch(start.begin(), start.end(), ids_.begin(), ids_.end()).first;
    auto position = static_cast<size_t>(parted - start.begin());
    if (position == start.size()) return {position};
    const size_t shared = position > kContext ? position - kContext : 0;
    const auto size_of = [&](const Ids& ids, size_t count) {
      return encoder_.tokenizer_.decode(std::span(ids).subspan(shared, count - shared)).size();
    };
    const size_t wanted = size_of(start, start.size());
    while (position < ids_.size() && size_of(ids_, position + 1) <= wanted) ++position;
    return {position, size_of(ids_, position) < wanted};
  }

  /// Number of ids that are decoded together with the compared ones, since the text of a token may depend on
  /// the tokens before it.
  static constexpr size_t kContext = 8;

  const MarkedEncoder& encoder_;
  std::string_view text_;
  Ids ids_;
  size_t done_bytes_ = 0;
  Position done_;
};

Tokens MarkedEncoder::encode(const MarkedText& marked) const {
  Aligner aligner(*this, marked.text);
  std::vector<std::pair<size_t, size_t>> trained;
  for (const Span& span : marked.trained) {
    if (span.first == span.last) continue;
    Aligner::Position first = aligner.position_of(span.first);
    const Character blank =
        first_character(std::string_view(marked.text).substr(static_cast<size_t>(span.first)));
    const bool may_be_taken = marked.by_template && !first.inside && first.num_ids > 0 && is_space(blank);
    if (may_be_taken && aligner.position_of(span.first + static_cast<int64_t>(blank.bytes)) == first)
      --first.num_ids;
    const Aligner::Position last = aligner.position_of(span.last);
    trained.emplace_back(first.num_ids, last.num_ids + (last.inside ? 1 : 0));
  }
  Tokens tokens{.ids = aligner.take()};
  tokens.trained.resize(tokens.ids.size());
  for (const auto& [first, last] : trained) {
    for (size_t i = first; i < last; ++i) tokens.trained[i] = 1;
  }
  return tokens;
}

void add_ends(Tokens& tokens, std::optional<int32_t> bos, std::optional<int32_t> eos) {
  if (eos && (tokens.ids.empty() || tokens.ids.back() != *eos)) {
    tokens.trained.push_back(tokens.ids.empty() ? 0 : tokens.trained.back());
    tokens.ids.push_back(*eos);
  }
  if (bos && (tokens.ids.empty() || tokens.ids.front() != *bos)) {
    tokens.ids.insert(tokens.ids.begin(), *bos);
    tokens.trained.insert(tokens.trained.begin(), 0);
  }
}

}  // namespace hearth::text
