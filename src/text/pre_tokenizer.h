#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/function_ref.h"
#include "text/pattern.h"

namespace hearth::text {

/// Treatment of a match at which a text is split (SplitDelimiterBehavior of Hugging Face's tokenizers).
enum class Split { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// Splits a text at the matches of `pattern`, or, with `invert`, at the text between matches.
struct SplitStep {
  Pattern pattern;
  Split matches = Split::isolated;
  bool invert = false;
};
/// Replaces spaces by `replacement`. Depending on `prefix`, adds a replacement before a text that does not
/// start with one. With `split`, cuts the text before each replacement.
struct MetaspaceStep {
  enum class Prefix { never, first, always };
  std::string replacement;
  Prefix prefix = Prefix::always;
  bool split = true;
};
/// Puts a space before each piece that does not start with one.
struct PrefixSpaceStep {};
/// SpellBytesStep encodes bytes in GPT-2's alphabet, for steps that expect it; UnspellBytesStep decodes them.
struct SpellBytesStep {};
struct UnspellBytesStep {};

using PreTokenizerStep =
    std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep, SpellBytesStep, UnspellBytesStep>;

/// Scratch memory of one thread. Any PreTokenizer or Normalizer may use it.
struct SplitScratch {
  RegexScratch regex;
  std::vector<std::string> buffers;
};

/// Splits a text into pieces, which the model encodes separately. Bytes that are not UTF-8 become separate
/// pieces.
class PreTokenizer {
 public:
  using Emit = FunctionRef<void(std::string_view piece)>;

  PreTokenizer() = default;
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps) : steps_(std::move(steps)) {}

  /// Calls emit(piece) for each piece in order. Pieces are nonempty and valid only during the call. `start`:
  /// number of bytes at the start of `text` that come from the first character of the user's text.
  void split(std::string_view text, size_t start, SplitScratch& scratch, Emit emit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// Regular expressions by which GPT-2, Llama 3 (those of cl100k), and Qwen 2 and 3 split text.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

}  // namespace hearth::text
