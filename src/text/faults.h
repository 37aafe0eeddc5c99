#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace hearth::text {

/// What is wrong with one record of a data file. The sentence names no place: for_each of DataFile knows it.
class RecordError : public UserError {
 public:
  /// `kind` is a few words for counting, "broken JSON".
  RecordError(std::string kind, const std::string& sentence) : UserError(sentence), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

/// The bad records of a data file: how many of each kind, and the first sentences in full. Its memory is
/// bounded however bad the file is.
class Faults {
 public:
  static constexpr size_t kMaxSentences = 100;

  void add(std::string_view file, int64_t line, const std::string& kind, std::string_view sentence);
  int64_t total() const { return total_; }
  const std::map<std::string, int64_t>& counts() const { return counts_; }
  static constexpr size_t kMaxSentenceBytes = 400;

  /// "FILE:LINE: sentence", the first of them in the order of the file; sentences are cut after
  /// kMaxSentenceBytes.
  const std::vector<std::string>& sentences() const { return sentences_; }

 private:
  int64_t total_ = 0;
  std::map<std::string, int64_t> counts_;
  std::vector<std::string> sentences_;
};

}  // namespace hearth::text
