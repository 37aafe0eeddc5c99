#include "arena/sweep.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace hearth::arena {
namespace {

// Max number of gaps to try for a buffer. Several, because a gap of sufficient size may be too small once its
// start is aligned.
constexpr int kMaxGapsTried = 16;

/// Free list: the gaps below the top of the used range.
class Gaps {
 public:
  int64_t top() const { return top_; }

  /// Allocates a buffer in the smallest sufficient gap (best fit) and returns its offset.
  int64_t take(const Buffer& buffer) {
    auto gap = by_size_.lower_bound({buffer.size, 0});
    for (int tried = 0; gap != by_size_.end() && tried < kMaxGapsTried; ++gap, ++tried) {
      const auto [size, begin] = *gap;
      if (aligned(begin, buffer.alignment) + buffer.size <= begin + size)
        return take_from(begin, begin + size, buffer);
    }
    const bool ends_free = !by_begin_.empty() && by_begin_.rbegin()->second == top_;
    const int64_t begin = ends_free ? by_begin_.rbegin()->first : top_;
    top_ = std::max(top_, aligned(begin, buffer.alignment) + buffer.size);
    return take_from(begin, top_, buffer);
  }

  void free(int64_t begin, int64_t end) {
    const auto after = by_begin_.find(end);
    if (after != by_begin_.end()) {
      end = after->second;
      erase(after);
    }
    const auto before = by_begin_.lower_bound(begin);
    if (before != by_begin_.begin() && std::prev(before)->second == begin) {
      begin = std::prev(before)->first;
      erase(std::prev(before));
    }
    insert(begin, end);
  }

 private:
  using GapMap = std::map<int64_t, int64_t>;

  int64_t take_from(int64_t begin, int64_t end, const Buffer& buffer) {
    const int64_t start = aligned(begin, buffer.alignment);
    if (const auto gap = by_begin_.find(begin); gap != by_begin_.end()) erase(gap);
    insert(begin, start);
    insert(start + buffer.size, end);
    return start;
  }

  void insert(int64_t begin, int64_t end) {
    if (begin == end) return;
    by_begin_.emplace(begin, end);
    by_size_.emplace(end - begin, begin);
  }

  void erase(GapMap::iterator gap) {
    by_size_.erase({gap->second - gap->first, gap->first});
    by_begin_.erase(gap);
  }

  GapMap by_begin_;  ///< begin and end of each gap
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t top_ = 0;
};

}  // namespace

Solution sweep(const Problem& problem) {
  // Begins and ends of buffers as tuples (time, true if begin, -size, buffer). At equal times, ends come
  // before begins, and larger buffers begin first.
  std::vector<std::tuple<int64_t, bool, int64_t, size_t>> events;
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    if (buffer.size == 0) continue;
    events.emplace_back(buffer.lower, true, -buffer.size, i);
    events.emplace_back(buffer.upper, false, -buffer.size, i);
  }
  std::sort(events.begin(), events.end());
  Solution solution;
  solution.offsets.resize(problem.buffers.size());
  Gaps gaps;
  for (const auto& [time, starts, size, i] : events) {
    int64_t& offset = solution.offsets[i];
    if (starts) {
      offset = gaps.take(problem.buffers[i]);
    } else {
      gaps.free(offset, offset - size);
    }
  }
  solution.height = gaps.top();
  return solution;
}

}  // namespace hearth::arena
