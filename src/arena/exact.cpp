#include "arena/exact.h"

#include <algorithm>

namespace hearth::arena {
namespace {

using Clock = std::chrono::steady_clock;

Budget share_of(const Budget& budget, double share) {
  const auto now = Clock::now();
  Budget part{.steps = static_cast<int64_t>(static_cast<double>(budget.steps) * share)};
  if (budget.deadline == TimePoint::max()) return part;
  const auto left = std::max(budget.deadline - now, Clock::duration::zero());
  part.deadline = now + std::chrono::duration_cast<Clock::duration>(left * share);
  return part;
}

/// Lowers the height of a solution by Search. Heights are in units of Pieces::unit.
class Improver {
 public:
  Improver(const Problem& problem, const Budget& budget, Solution& solution)
      : problem_(problem), solution_(solution), pieces_(cut(problem)), budget_(budget) {
    for (const Piece& piece : pieces_.pieces) {
      heights_.push_back(height_of(piece));
      proven_bound_ = std::max(proven_bound_, piece.bound);
    }
  }

  /// Searches at the capacity; if it is not reached, the rest of the budget lowers the height by bisection.
  void search_at_capacity(int64_t capacity) {
    const int64_t target = capacity / pieces_.unit;
    attempt(target, share_of(budget_, 0.82));
    if (height() > target) bisect();
  }

  void minimize() {
    const int64_t bound = proven_bound_;
    const int64_t one_percent_more = bound + bound / 100;
    if (one_percent_more < height()) attempt(one_percent_more, share_of(budget_, 0.6));
    if (height() <= one_percent_more) attempt(bound, share_of(budget_, 0.6));
    bisect();
  }

  void finish() {
    for (size_t i = 0; i < problem_.buffers.size(); ++i) {
      if (problem_.buffers[i].size == 0) solution_.offsets[i] = 0;
    }
    solution_.height = height() * pieces_.unit;
    solution_.proven_bound = proven_bound_ * pieces_.unit;
  }

 private:
  void bisect() {
    while (min_open_height_ < height() && budget_.steps > 0 && Clock::now() < budget_.deadline) {
      attempt(min_open_height_ + (height() - min_open_height_) / 2, share_of(budget_, 0.5));
    }
  }

  int64_t height() const { return *std::max_element(heights_.begin(), heights_.end()); }

  int64_t height_of(const Piece& piece) const {
    int64_t height = 0;
    for (const Item& item : piece.items) {
      const auto buffer = static_cast<size_t>(item.buffer);
      height = std::max(height, solution_.offsets[buffer] + problem_.buffers[buffer].size);
    }
    return height / pieces_.unit;
  }

  void attempt(int64_t target, Budget budget) {
    for (size_t k = 0; k < heights_.size(); ++k) {
      if (heights_[k] <= target) continue;
      Search search(pieces_.pieces[k]);
      const Verdict verdict = search.run(target, budget);
      budget.steps -= search.steps_used();
      budget_.steps -= search.steps_used();
      if (verdict == Verdict::found) {
        take(k, search.offsets());
        continue;
      }
      if (verdict == Verdict::impossible) proven_bound_ = std::max(proven_bound_, target + 1);
      min_open_height_ = std::max(min_open_height_, target + 1);
      return;
    }
  }

  void take(size_t k, const std::vector<int64_t>& offsets) {
    const Piece& piece = pieces_.pieces[k];
    for (size_t i = 0; i < piece.items.size(); ++i) {
      solution_.offsets[static_cast<size_t>(piece.items[i].buffer)] = offsets[i] * pieces_.unit;
    }
    heights_[k] = height_of(piece);
  }

  const Problem& problem_;
  Solution& solution_;
  Pieces pieces_;
  Budget budget_;
  std::vector<int64_t> heights_;
  /// Proven lower bound: no solution is lower.
  int64_t proven_bound_ = 0;
  /// Lowest height that is still worth a search; for all lower heights the search failed or
  /// exceeded its budget.
  int64_t min_open_height_ = 0;
};

}  // namespace

void improve(const Problem& problem, std::optional<int64_t> capacity, const Budget& budget,
             Solution& solution) {
  Improver improver(problem, budget, solution);
  if (capacity) {
    improver.search_at_capacity(*capacity);
  } else {
    improver.minimize();
  }
  improver.finish();
}

}  // namespace hearth::arena
