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

/// Splits at the matches, or with `invert` at the text between matches.
struct SplitStep {
  Pattern pattern;
  Split matches = Split::isolated;
  bool invert = false;
};
/// Replaces spaces by `replacement` and, depending on `prefix`, puts one before a text that starts with none.
/// `split` cuts the text before each.
struct MetaspaceStep {
  enum class Prefix { never, first, always };
  std::string replacement;
  Prefix prefix = Prefix::always;
  bool split = true;
};
/// Puts a space before each piece that does not start with one.
struct PrefixSpaceStep {};
/// Encodes bytes in GPT-2's alphabet, for steps that expect it (SpellBytesStep), and decodes them.
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

  /// Calls emit(piece) for each piece in order. Pieces are nonempty and valid during the call. `start`:
  /// number of bytes at the start of `text` that stem from the first character of the user's text.
  void split(std::string_view text, size_t start, SplitScratch& scratch, Emit emit) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

/// Regular expressions that split text for GPT-2, Llama 3 (after cl100k), and Qwen 2 and 3.
extern const char* const kGpt2Pattern;
extern const char* const kLlama3Pattern;
extern const char* const kQwen2Pattern;

}  // namespace hearth::text
