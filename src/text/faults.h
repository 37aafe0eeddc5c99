#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace hearth::text {

/// An error in one record of a data file. The message does not contain file and line; DataFile::for_each()
/// adds them.
class RecordError : public UserError {
 public:
  /// `kind`: a short category for counting, such as "broken JSON".
  RecordError(std::string kind, const std::string& sentence) : UserError(sentence), kind_(std::move(kind)) {}
  const std::string& kind() const { return kind_; }

 private:
  std::string kind_;
};

/// Collector of the bad records of a data file: their number by kind of error, and the first messages. Memory
/// is bounded for any file.
class Faults {
 public:
  static constexpr size_t kMaxSentences = 100;

  /// Counts an error and stores its message, if fewer than kMaxSentences are stored.
  void add(std::string_view file, int64_t line, const std::string& kind, std::string_view sentence);
  int64_t total() const { return total_; }
  /// Returns the number of bad records of each kind of error.
  const std::map<std::string, int64_t>& counts() const { return counts_; }
  static constexpr size_t kMaxSentenceBytes = 400;

  /// Returns the first kMaxSentences messages "FILE:LINE: sentence" in the order of the file, each cut after
  /// kMaxSentenceBytes.
  const std::vector<std::string>& sentences() const { return sentences_; }

 private:
  int64_t total_ = 0;
  std::map<std::string, int64_t> counts_;
  std::vector<std::string> sentences_;
};

}  // namespace hearth::text
