#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "text/samples.h"

namespace hearth::text {

enum class Marking {
  color,  ///< tokens that the loss does not count are dimmed by ANSI codes
  signs   ///< those that it counts stand between {+ and +}
};

struct InspectOptions {
  Marking marking = Marking::signs;
  int64_t num_shown = 3;
  /// Tokens in a row; 0 when that is not known.
  int64_t context = 0;
  /// Called with every sample first, if set. An exception ends the summary.
  std::function<void(const Sample&)> check = {};
};

/// What is in a data file, as training will see it.
struct TextSummary {
  int64_t num_samples = 0;
  std::map<std::string, int64_t> formats;  ///< records by the name of their format
  int64_t num_tokens = 0;
  int64_t num_trained = 0;
  int64_t num_overlong = 0;           ///< samples with more tokens than the context
  int64_t num_untrained = 0;          ///< samples without a trained token
  int64_t num_open_turns = 0;         ///< see MarkedText
  int64_t num_equal = 0;              ///< preference pairs with equal answers
  int64_t num_without_reasoning = 0;  ///< samples whose reasoning the template omits
  std::vector<int64_t> lengths;
  std::vector<std::string> shown;  ///< the first samples, rendered
  Faults faults;
};

/// Goes through a file once.
TextSummary summarize(const SampleReader& reader, const InspectOptions& options);

/// Tokens as text, decoded in runs, with those marked that the loss counts; long runs are shortened, control
/// characters are escaped.
std::string show_tokens(const Tokens& tokens, const Tokenizer& tokenizer, Marking marking);

/// Returns a sentence on samples whose reasoning the chat template does not print.
std::string unprinted_reasoning(int64_t num_samples);

/// Lengths by powers of two, one line each: "  65..128 |#####      | 1234".
std::string length_histogram(const std::vector<int64_t>& lengths);

/// What `hearth validate` prints for text: samples, counts, histogram, bad records as FILE:LINE.
std::string describe(const TextSummary& summary, const SampleReader& reader, const InspectOptions& options);

}  // namespace hearth::text
