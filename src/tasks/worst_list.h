#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Keeps the `limit` samples with the highest error, the worst first. Of samples with equal errors the one
/// that was added first comes first.
template <typename Details>
class WorstList {
 public:
  struct Entry {
    double error = 0;
    int64_t index = 0;  ///< index of the sample
    Details details;
  };

  explicit WorstList(int64_t limit) : limit_(limit) {}
  /// True if a sample with this error would be kept. NaN is not.
  bool accepts(double error) const {
    return limit_ > 0 && error == error && (std::ssize(entries_) < limit_ || error > entries_.back().error);
  }
  /// Adds a sample that is accepted, and drops the one with the lowest error if there are too many.
  void add(double error, int64_t index, Details details) {
    const auto at = std::ranges::upper_bound(entries_, error, std::ranges::greater(), &Entry::error);
    entries_.insert(at, {error, index, std::move(details)});
    if (std::ssize(entries_) > limit_) entries_.pop_back();
  }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  int64_t limit_;
  std::vector<Entry> entries_;
};

}  // namespace hearth::tasks
