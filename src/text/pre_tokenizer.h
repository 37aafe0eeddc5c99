#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "text/pattern.h"

namespace hearth::text {

/// What becomes of a match when a text is split at it.
enum class Split { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits at the matches; at what lies between when `invert`.
struct SplitStep {
  Pattern pattern;
  Split matches = Split::isolated;
  bool invert = false;
};
/// Spaces become `replacement`, with one put ahead of a text that begins with none; `split` cuts before each.
struct MetaspaceStep {
  enum class Prefix { never, first, always };
  std::string replacement;
  Prefix prefix = Prefix::always;
  bool split = true;
};
/// A space ahead of every piece that begins with none.
struct PrefixSpaceStep {};
/// Bytes to their spelling in GPT-2's alphabet, for steps that expect to see it, and back.
struct SpellBytesStep {};
struct UnspellBytesStep {};

using PreTokenizerStep =
    std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep, SpellBytesStep, UnspellBytesStep>;

/// Working memory of one thread; any PreTokenizer or Normalizer may use it.
struct SplitScratch {
  RegexScratch regex;
  std::vector<std::string> buffers;
};

/// Cuts a text into the pieces that are encoded one by one. Bytes that are not UTF-8 become pieces of their
/// own.
class PreTokenizer {
 public:
  using Emit = FunctionRef<void(std::string_view piece)>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  /// Calls `emit` for each piece, in order; none is empty, and each is valid during its call. `start`:
  /// how many bytes at its start come of the first character of what the user gave.
  void split(std::string_view text, size_t start, SplitScratch& scratch, Emit emit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// The split expressions of OpenAI's GPT-2, of Llama 3 (after cl100k), and of Qwen 2 and 3.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

}  // namespace hearth::text
