#include "text/pre_tokenizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/byte_level.h"

namespace hearth::text {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

/// True if a part of a split text is joined with the part before it. `was_match`, `is_match`: whether the
/// previous part and this part are matches.
bool joins(Split matches, bool was_match, bool is_match) {
  switch (matches) {
    case Split::merged_with_previous:
      return is_match && !was_match;
    case Split::merged_with_next:
      return was_match && !is_match;
    case Split::contiguous:
      return was_match == is_match;
    case Split::removed:
    case Split::isolated:
      return false;
  }
  internal_error("no such way to split");
}

/// Calls part(begin, end, is_match) for each match and for the text between matches, in order.
template <typename Part>
void for_each_part(const Pattern& pattern, std::string_view text, RegexScratch& scratch, Part&& part) {
  size_t done = 0;
  for_each_match(pattern, text, scratch, [&](Range match) {
    if (match.begin > done) part(done, match.begin, false);
    part(match.begin, match.end, true);
    done = match.end;
  });
  if (done < text.size()) part(done, text.size(), false);
}

/// Returns how many of the first `start` bytes of a text remain after its first `bytes` bytes are removed.
size_t behind(size_t start, std::ptrdiff_t bytes) {
  return start - std::min(start, static_cast<size_t>(bytes));
}

/// Applies pre-tokenizer steps depth-first: each piece passes through all following steps before the next
/// piece is cut, so only one buffer per step is needed. `start`: number of bytes at the start of a piece that
/// come from the first character of the user's text, which MetaspaceStep::Prefix::first needs.
class Splitting {
 public:
  Splitting(const std::vector<PreTokenizerStep>& steps, SplitScratch& scratch, PreTokenizer::Emit emit,
            size_t max_bytes)
      : steps_(steps), scratch_(scratch), emit_(emit), max_bytes_(max_bytes) {}

  /// Applies the steps from steps_[index] on to a piece.
  void pass(size_t index, std::string_view piece, size_t start) {
    if (piece.empty()) return;
    if (index == steps_.size()) return emit_(piece);
    passed_ += piece.size();
    check_growth(passed_, max_bytes_);
    start = std::min(start, piece.size());
    std::visit([&](const auto& step) { apply(step, index, piece, start); }, steps_[index]);
  }

 private:
  void apply(const SplitStep& step, size_t index, std::string_view piece, size_t start) {
    const char* begin = piece.data();
    for_each_run(
        piece, [&](std::string_view run) { split_run(step, index, run, behind(start, run.data() - begin)); },
        [&](std::string_view byte) { pass(index + 1, byte, behind(start, byte.data() - begin)); });
  }

  void split_run(const SplitStep& step, size_t index, std::string_view run, size_t start) {
    Range pending;
    bool was_match = false;
    const auto flush = [&] {
      if (step.matches == Split::removed && was_match) return;
      pass(index + 1, run.substr(pending.begin, pending.end - pending.begin),
           behind(start, static_cast<std::ptrdiff_t>(pending.begin)));
    };
    for_each_part(step.pattern, run, scratch_.regex, [&](size_t begin, size_t end, bool match) {
      const bool is_match = match != step.invert;
      if (pending.end > 0 && joins(step.matches, was_match, is_match)) {
        pending.end = end;
      } else {
        flush();
        pending = {begin, end};
      }
      was_match = is_match;
    });
    flush();
  }

  void apply(const MetaspaceStep& step, size_t index, std::string_view piece, size_t start) {
    std::string& text = scratch_.buffers[index];
    text.clear();
    const bool wanted = step.prefix == MetaspaceStep::Prefix::always ||
                        (step.prefix == MetaspaceStep::Prefix::first && start > 0);
    if (wanted && piece[0] != ' ' && !piece.starts_with(step.replacement)) text = step.replacement;
    size_t new_start = 0;
    for (size_t i = 0; i < piece.size(); ++i) {
      if (piece[i] == ' ') {
        text += step.replacement;
      } else {
        text += piece[i];
      }
      if (i + 1 == start) new_start = text.size();
    }
    start = new_start;
    std::string_view rest = text;
    while (step.split && !rest.empty()) {
      const size_t length = std::min(rest.find(step.replacement, 1), rest.size());
      pass(index + 1, rest.substr(0, length), behind(start, rest.data() - text.data()));
      rest.remove_prefix(length);
    }
    if (!step.split) pass(index + 1, rest, start);
  }

  void apply(const PrefixSpaceStep&, size_t index, std::string_view piece, size_t start) {
    if (piece[0] == ' ') return pass(index + 1, piece, start);
    scratch_.buffers[index].assign(1, ' ').append(piece);
    pass(index + 1, scratch_.buffers[index], start > 0 ? start + 1 : 0);
  }

  void apply(const SpellBytesStep&, size_t index, std::string_view piece, size_t start) {
    start = to_byte_level(piece.substr(0, start)).size();
    scratch_.buffers[index] = to_byte_level(piece);
    pass(index + 1, scratch_.buffers[index], start);
  }

  void apply(const UnspellBytesStep&, size_t index, std::string_view piece, size_t start) {
    scratch_.buffers[index] = from_byte_level(piece).value_or(std::string(piece));
    pass(index + 1, scratch_.buffers[index], start);
  }

  const std::vector<PreTokenizerStep>& steps_;
  SplitScratch& scratch_;
  PreTokenizer::Emit emit_;
  /// Sum of the bytes that were passed to all steps so far, and its limit.
  size_t passed_ = 0;
  size_t max_bytes_;
};

}  // namespace

void PreTokenizer::split(std::string_view text, size_t start, SplitScratch& scratch, Emit emit) const {
  if (scratch.buffers.size() < steps_.size()) scratch.buffers.resize(steps_.size());
  Splitting(steps_, scratch, emit, steps_.size() * max_grown_bytes(text.size())).pass(0, text, start);
}

}  // namespace hearth::text
