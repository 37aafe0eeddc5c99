#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "text/samples.h"

namespace hearth::text {

/// Style in which show_tokens marks the tokens that count in the loss.
enum class Marking {
  color,  ///< dims tokens that do not count, by ANSI color codes
  signs   ///< encloses tokens that count in {+ and +}
};

/// Options of summarize() and describe().
struct InspectOptions {
  Marking marking = Marking::signs;
  int64_t num_shown = 3;
  /// Tokens per training row (data.context); 0 if unknown.
  int64_t context = 0;
  /// If set, called with each sample before it is counted. If it throws an exception, the summary ends.
  std::function<void(const Sample&)> check = {};
};

/// Statistics of a data file as training will read it.
struct TextSummary {
  int64_t num_samples = 0;
  std::map<std::string, int64_t> formats;  ///< number of records by the name of their data format
  int64_t num_tokens = 0;
  int64_t num_trained = 0;
  int64_t num_overlong = 0;           ///< number of samples with more tokens than InspectOptions::context
  int64_t num_untrained = 0;          ///< number of samples without a token that counts in the loss
  int64_t num_open_turns = 0;         ///< sum of MarkedText::num_open_turns
  int64_t num_equal = 0;              ///< number of preference records with equal answers
  int64_t num_without_reasoning = 0;  ///< number of samples whose reasoning the chat template omits
  std::vector<int64_t> lengths;
  std::vector<std::string> shown;  ///< texts of the first samples, see show_tokens()
  Faults faults;
};

/// Reads the reader's file once and collects its statistics.
TextSummary summarize(const SampleReader& reader, const InspectOptions& options);

/// Returns the text of tokens, with those that count in the loss marked in the style `marking`. Long
/// stretches are shortened, control characters escaped.
std::string show_tokens(const Tokens& tokens, const Tokenizer& tokenizer, Marking marking);

/// Returns a sentence on samples whose reasoning the chat template does not print.
std::string unprinted_reasoning(int64_t num_samples);

/// Formats a histogram of lengths in powers of two, one line each: "  65..128 |#####      | 1234".
std::string length_histogram(const std::vector<int64_t>& lengths);

/// Formats the text part of `hearth validate`: samples, counts, histogram, bad records as FILE:LINE.
std::string describe(const TextSummary& summary, const SampleReader& reader, const InspectOptions& options);

}  // namespace hearth::text
