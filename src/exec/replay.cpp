#include "exec/replay.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"

/// A discrete-event simulation. In each round, steps at the front of their queue start once their waits are
/// over and, for a meeting, once its steps of all workers are ready. A step first takes its seconds, then
/// moves its bytes at a rate from max-min fair sharing of the paths; the clock advances to the next end of
/// either. A round costs O(active steps x paths) and ends one phase of a step or more.
namespace hearth::exec {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Fraction of a step's bytes below which the rest is a rounding error.
constexpr double kNothing = 1e-12;

/// A step that has begun.
struct Running {
  size_t worker = 0, step = 0;
  const ReplayStep* what = nullptr;
  double seconds = 0;    ///< seconds left before its bytes move
  double num_bytes = 0;  ///< bytes left to move
  double rate = 0;       ///< bytes per second
  bool moves() const { return seconds <= 0 && num_bytes > 0; }
  bool done() const { return seconds <= 0 && num_bytes <= 0; }
};

class Player {
 public:
  Player(std::span<const std::vector<ReplayStep>> workers, std::span<const double> bytes_per_second)
      : workers_(workers), bytes_per_second_(bytes_per_second), lines_(workers.size()) {
    replay_.busy_seconds.resize(workers.size());
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      replay_.spans.emplace_back(workers[worker].size(), ReplaySpan{.end = kNever});
      for (size_t step = 0; step < workers[worker].size(); ++step) {
        const ReplayStep& added = workers[worker][step];
        lines_[worker][static_cast<size_t>(added.queue)].steps.push_back(step);
        if (added.meeting >= 0) ++num_expected_[added.meeting];
        ++num_left_;
      }
    }
  }

  Replay run() && {
    while (num_left_ > 0) {
      start_what_can();
      if (finish_what_ended()) continue;
      share_paths();
      advance();
    }
    replay_.seconds = now_;
    return std::move(replay_);
  }

 private:
  /// Steps of a queue, in order.
  struct Line {
    std::vector<size_t> steps;
    size_t next = 0;
    bool busy = false;
  };

  bool is_ready(size_t worker, const Line& line) const {
    if (line.busy || line.next == line.steps.size()) return false;
    const std::vector<ReplaySpan>& spans = replay_.spans[worker];
    return std::ranges::all_of(workers_[worker][line.steps[line.next]].waits,
                               [&](size_t earlier) { return spans[earlier].end <= now_; });
  }

  void start_what_can() {
    std::vector<std::pair<size_t, Line*>> ready;
    std::map<int64_t, int> num_arrived;
    const auto meeting_of = [&](const auto& one) {
      return workers_[one.first][one.second->steps[one.second->next]].meeting;
    };
    for (size_t worker = 0; worker < lines_.size(); ++worker) {
      for (Line& line : lines_[worker]) {
        if (is_ready(worker, line)) ++num_arrived[meeting_of(ready.emplace_back(worker, &line))];
      }
    }
    for (const auto& one : ready) {
      const int64_t meeting = meeting_of(one);
      if (meeting < 0 || num_arrived[meeting] == num_expected_[meeting]) start(one.first, *one.second);
    }
  }

  void start(size_t worker, Line& line) {
    const size_t step = line.steps[line.next++];
    const ReplayStep& what = workers_[worker][step];
    line.busy = true;
    replay_.spans[worker][step].begin = now_;
    running_.push_back({.worker = worker,
                        .step = step,
                        .what = &what,
                        .seconds = what.seconds,
                        .num_bytes = what.num_bytes});
  }

  bool has_ended(const Running& one) const {
    if (one.what->meeting < 0) return one.done();
    return std::ranges::all_of(running_, [&](const Running& other) {
      return other.what->meeting != one.what->meeting || other.done();
    });
  }

  /// Ends all steps that are done; returns whether there were any.
  bool finish_what_ended() {
    std::vector<Running> on;
    for (const Running& one : running_) {
      if (has_ended(one)) {
        finish(one);
      } else {
        on.push_back(one);
      }
    }
    const bool any = on.size() < running_.size();
    running_ = std::move(on);
    return any;
  }

  void finish(const Running& one) {
    const auto queue = static_cast<size_t>(one.what->queue);
    ReplaySpan& span = replay_.spans[one.worker][one.step];
    span.end = now_;
    replay_.busy_seconds[one.worker][queue] += span.end - span.begin;
    lines_[one.worker][queue].busy = false;
    --num_left_;
  }

  /// Computes rates by progressive filling: raises all rates together until a path is saturated, fixes the
  /// rates of its users there, and continues with the others.
  void share_paths() {
    std::vector<double> free(bytes_per_second_.begin(), bytes_per_second_.end());
    std::vector<Running*> rising;
    for (Running& one : running_) {
      if (one.moves()) rising.push_back(&one);
    }
    while (!rising.empty()) {
      std::vector<double> wanted(free.size(), 0);
      for (const Running* one : rising) {
        for (const PathUse& use : one->what->paths) wanted[use.path] += use.per_byte;
      }
      size_t full = 0;
      double rate = kNever;
      for (size_t path = 0; path < free.size(); ++path) {
        if (wanted[path] <= 0 || free[path] / wanted[path] >= rate) continue;
        rate = free[path] / wanted[path];
        full = path;
      }
      HEARTH_CHECK(rate < kNever);
      std::erase_if(rising, [&](Running* one) {
        const std::vector<PathUse>& uses = one->what->paths;
        if (std::ranges::find(uses, full, &PathUse::path) == uses.end()) return false;
        one->rate = rate;
        for (const PathUse& use : uses) free[use.path] -= rate * use.per_byte;
        return true;
      });
    }
  }

  /// Advances the clock to the next end of a step's seconds or bytes.
  void advance() {
    double least = kNever;
    for (const Running& one : running_) {
      if (one.seconds > 0) least = std::min(least, one.seconds);
      if (one.moves()) least = std::min(least, one.num_bytes / one.rate);
    }
    HEARTH_CHECK(least < kNever);
    now_ += least;
    for (Running& one : running_) {
      if (one.moves()) {
        one.num_bytes -= least * one.rate;
        if (one.num_bytes <= kNothing * one.what->num_bytes) one.num_bytes = 0;
      } else if (one.seconds > 0) {
        one.seconds -= least;
      }
    }
  }

  std::span<const std::vector<ReplayStep>> workers_;
  std::span<const double> bytes_per_second_;
  std::vector<std::array<Line, kNumQueues>> lines_;
  std::map<int64_t, int> num_expected_;  ///< number of workers in each meeting
  std::vector<Running> running_;
  size_t num_left_ = 0;
  double now_ = 0;
  Replay replay_;
};

}  // namespace

Replay replay(std::span<const std::vector<ReplayStep>> workers, std::span<const double> bytes_per_second) {
  return Player(workers, bytes_per_second).run();
}

}  // namespace hearth::exec
