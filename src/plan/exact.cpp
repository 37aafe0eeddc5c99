#include "plan/exact.h"

#include <algorithm>
#include <memory>

namespace hearth::plan {
namespace {

using Clock = std::chrono::steady_clock;

TimePoint share_of_time(TimePoint deadline, double share) {
  const auto now = Clock::now();
  const auto left = std::max(deadline - now, Clock::duration::zero());
  return now + std::chrono::duration_cast<Clock::duration>(left * share);
}

/// Heights are in units of the pieces.
class Improver {
 public:
  Improver(const Problem& problem, Solution& solution)
      : problem_(problem), solution_(solution), pieces_(cut(problem)), searches_(pieces_.pieces.size()) {
    for (const Piece& piece : pieces_.pieces) {
      heights_.push_back(height_of(piece));
      proven_bound_ = std::max(proven_bound_, piece.bound);
    }
  }

  void aim_at_capacity(int64_t capacity, TimePoint deadline) { attempt(capacity / pieces_.unit, deadline); }

  void minimise(TimePoint deadline) {
    const int64_t bound = proven_bound_;
    attempt(bound, share_of_time(deadline, 0.4));
    const int64_t one_percent_more = bound + bound / 100;
    if (height() > one_percent_more) attempt(one_percent_more, share_of_time(deadline, 0.5));
    while (least_open_ < height() && Clock::now() < deadline) {
      attempt(least_open_ + (height() - least_open_) / 2, share_of_time(deadline, 0.3));
    }
  }

  void finish() {
    solution_.height = height() * pieces_.unit;
    solution_.proven_bound = proven_bound_ * pieces_.unit;
  }

 private:
  int64_t height() const { return *std::max_element(heights_.begin(), heights_.end()); }

  int64_t height_of(const Piece& piece) const {
    int64_t height = 0;
    for (const Item& item : piece.items) {
      const auto buffer = static_cast<size_t>(item.buffer);
      height = std::max(height, solution_.offsets[buffer] + problem_.buffers[buffer].size);
    }
    return height / pieces_.unit;
  }

  void attempt(int64_t target, TimePoint deadline) {
    for (size_t k = 0; k < heights_.size(); ++k) {
      if (heights_[k] <= target) continue;
      if (searches_[k] == nullptr) searches_[k] = std::make_unique<Search>(pieces_.pieces[k]);
      const Verdict verdict = searches_[k]->run(target, deadline);
      if (verdict == Verdict::found) {
        take(k);
        continue;
      }
      if (verdict == Verdict::impossible) proven_bound_ = std::max(proven_bound_, target + 1);
      least_open_ = std::max(least_open_, target + 1);
      return;
    }
  }

  void take(size_t k) {
    const Piece& piece = pieces_.pieces[k];
    for (size_t i = 0; i < piece.items.size(); ++i) {
      solution_.offsets[static_cast<size_t>(piece.items[i].buffer)] =
          searches_[k]->offsets()[i] * pieces_.unit;
    }
    heights_[k] = height_of(piece);
  }

  const Problem& problem_;
  Solution& solution_;
  Pieces pieces_;
  std::vector<std::unique_ptr<Search>> searches_;
  std::vector<int64_t> heights_;
  /// No solution is lower.
  int64_t proven_bound_ = 0;
  /// Lowest height worth an attempt: below it, all were impossible or took too long.
  int64_t least_open_ = 0;
};

}  // namespace

void improve(const Problem& problem, const SolveOptions& options, TimePoint deadline, Solution& solution) {
  Improver improver(problem, solution);
  if (options.capacity) {
    improver.aim_at_capacity(*options.capacity, deadline);
  } else {
    improver.minimise(deadline);
  }
  improver.finish();
}

}  // namespace hearth::plan
