#include <algorithm>

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

/// A text that goes on after another is tokenised behind a line's end, whose ids are then taken away, where
/// the tokenizer would put a blank before it.
std::vector<int32_t> MarkedEncoder::encode_part(std::string_view text, bool goes_on) const {
  Ids ids;
  if (goes_on && adds_blank_) {
    tokenizer_.encode("\n" + std::string(text), SpecialTokens::parsed, ids);
    if (starts_with(ids, anchor_)) return Ids(ids.begin() + std::ssize(anchor_), ids.end());
    ids.clear();
  }
  tokenizer_.encode(text, SpecialTokens::parsed, ids);
  return ids;
}

/// The ids of a text, and how many of them lie before each of its marks.
class MarkedEncoder::Aligner {
 public:
  Aligner(const MarkedEncoder& encoder, std::string_view text)
      : encoder_(encoder), text_(text), ids_(encoder.encode_part(text, false)) {}

  /// The marks have to be asked for in their order.
  int64_t num_ids_before(int64_t mark) {
    const auto byte = static_cast<size_t>(mark);
    if (byte > done_bytes_ && byte < text_.size()) advance(byte);
    return byte == text_.size() ? std::ssize(ids_) : static_cast<int64_t>(done_ids_);
  }
  Ids take() { return std::move(ids_); }

 private:
  void advance(size_t byte) {
    const Ids part = encoder_.encode_part(text_.substr(done_bytes_, byte - done_bytes_), done_bytes_ > 0);
    done_bytes_ = byte;
    if (starts_with(std::span(ids_).subspan(done_ids_), part)) {
      done_ids_ += part.size();
    } else if (!advance_by_start()) {
      cut(part);
    }
  }

  /// Whether the ids of the text before the mark are those that the whole text starts with.
  bool advance_by_start() {
    if (is_cut_) return false;
    const Ids start = encoder_.encode_part(text_.substr(0, done_bytes_), false);
    if (!starts_with(ids_, start)) return false;
    done_ids_ = start.size();
    return true;
  }

  void cut(const Ids& part) {
    is_cut_ = true;
    ids_.resize(done_ids_);
    ids_.insert(ids_.end(), part.begin(), part.end());
    done_ids_ = ids_.size();
    const Ids rest = encoder_.encode_part(text_.substr(done_bytes_), true);
    ids_.insert(ids_.end(), rest.begin(), rest.end());
  }

  const MarkedEncoder& encoder_;
  std::string_view text_;
  Ids ids_;
  size_t done_bytes_ = 0;
  size_t done_ids_ = 0;
  bool is_cut_ = false;
};

Tokens MarkedEncoder::encode(const MarkedText& marked) const {
  Aligner aligner(*this, marked.text);
  std::vector<Span> trained;
  for (const Span& span : marked.trained) {
    const int64_t first = aligner.num_ids_before(span.first);
    trained.push_back({first, aligner.num_ids_before(span.last)});
  }
  Tokens tokens{.ids = aligner.take()};
  tokens.trained.resize(tokens.ids.size());
  for (const Span& span : trained) {
    std::fill(tokens.trained.begin() + span.first, tokens.trained.begin() + span.last, uint8_t{1});
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
