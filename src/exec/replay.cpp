#include "exec/replay.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"

/// A discrete-event simulation. In each round, the first step of each queue starts if the steps that it waits
/// for have ended and, for a meeting, if the steps of all workers in it are ready. A step first takes its
/// seconds, and then moves its bytes at a rate that follows from max-min fair sharing of the paths. The clock
/// then advances to the next time at which a step ends one of these two phases. A round costs O(active steps
/// x paths) and ends at least one phase.
namespace hearth::exec {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// Fraction of a step's bytes below which the remaining bytes are considered a rounding error.
constexpr double kNothing = 1e-12;

/// A step that has started and not ended yet.
struct RunningStep {
  size_t worker = 0, step = 0;
  const SimulatedStep* what = nullptr;
  double seconds = 0;    ///< seconds of work left, before its bytes start to move
  double num_bytes = 0;  ///< bytes left to move
  double rate = 0;       ///< current rate in bytes per second
  bool moves() const { return seconds <= 0 && num_bytes > 0; }
  bool done() const { return seconds <= 0 && num_bytes <= 0; }
};

class Simulator {
 public:
  Simulator(std::span<const std::vector<SimulatedStep>> workers, std::span<const double> bytes_per_second)
      : workers_(workers), bytes_per_second_(bytes_per_second), lines_(workers.size()) {
    replay_.busy_seconds.resize(workers.size());
    for (size_t worker = 0; worker < workers.size(); ++worker) {
      replay_.spans.emplace_back(workers[worker].size(), SimulatedSpan{.end = kNever});
      for (size_t step = 0; step < workers[worker].size(); ++step) {
        const SimulatedStep& added = workers[worker][step];
        lines_[worker][static_cast<size_t>(added.queue)].steps.push_back(step);
        if (added.meeting >= 0) ++num_expected_[added.meeting];
        ++num_left_;
      }
    }
  }

  Replay run() && {
    while (num_left_ > 0) {
      start_ready_steps();
      if (finish_ended_steps()) continue;
      share_paths();
      advance();
    }
    replay_.seconds = now_;
    return std::move(replay_);
  }

 private:
  /// Steps of a queue, in order.
  struct StepQueue {
    std::vector<size_t> steps;
    size_t next = 0;
    bool busy = false;
  };

  bool is_ready(size_t worker, const StepQueue& line) const {
    if (line.busy || line.next == line.steps.size()) return false;
    const std::vector<SimulatedSpan>& spans = replay_.spans[worker];
    return std::ranges::all_of(workers_[worker][line.steps[line.next]].waits,
                               [&](size_t earlier) { return spans[earlier].end <= now_; });
  }

  void start_ready_steps() {
    std::vector<std::pair<size_t, StepQueue*>> ready;
    std::map<int64_t, int> num_arrived;
    const auto meeting_of = [&](const auto& one) {
      return workers_[one.first][one.second->steps[one.second->next]].meeting;
    };
    for (size_t worker = 0; worker < lines_.size(); ++worker) {
      for (StepQueue& line : lines_[worker]) {
        if (is_ready(worker, line)) ++num_arrived[meeting_of(ready.emplace_back(worker, &line))];
      }
    }
    for (const auto& one : ready) {
      const int64_t meeting = meeting_of(one);
      if (meeting < 0 || num_arrived[meeting] == num_expected_[meeting]) start(one.first, *one.second);
    }
  }

  void start(size_t worker, StepQueue& line) {
    const size_t step = line.steps[line.next++];
    const SimulatedStep& what = workers_[worker][step];
    line.busy = true;
    replay_.spans[worker][step].begin = now_;
    running_.push_back({.worker = worker,
                        .step = step,
                        .what = &what,
                        .seconds = what.seconds,
                        .num_bytes = what.num_bytes});
  }

  bool has_ended(const RunningStep& one) const {
    if (one.what->meeting < 0) return one.done();
    return std::ranges::all_of(running_, [&](const RunningStep& other) {
      return other.what->meeting != one.what->meeting || other.done();
    });
  }

  /// Ends all steps that are done. Returns true if there were any.
  bool finish_ended_steps() {
    std::vector<RunningStep> on;
    for (const RunningStep& one : running_) {
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

  void finish(const RunningStep& one) {
    const auto queue = static_cast<size_t>(one.what->queue);
    SimulatedSpan& span = replay_.spans[one.worker][one.step];
    span.end = now_;
    replay_.busy_seconds[one.worker][queue] += span.end - span.begin;
    lines_[one.worker][queue].busy = false;
    --num_left_;
  }

  /// Computes the rate of each step by progressive filling: raises all rates together until a path is
  /// saturated, fixes the rates of the steps that use this path, and continues with the others.
  void share_paths() {
    std::vector<double> free(bytes_per_second_.begin(), bytes_per_second_.end());
    std::vector<RunningStep*> rising;
    for (RunningStep& one : running_) {
      if (one.moves()) rising.push_back(&one);
    }
    while (!rising.empty()) {
      std::vector<double> wanted(free.size(), 0);
      for (const RunningStep* one : rising) {
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
      std::erase_if(rising, [&](RunningStep* one) {
        const std::vector<PathUse>& uses = one->what->paths;
        if (std::ranges::find(uses, full, &PathUse::path) == uses.end()) return false;
        one->rate = rate;
        for (const PathUse& use : uses) free[use.path] -= rate * use.per_byte;
        return true;
      });
    }
  }

  /// Advances the clock to the next time at which a step has no seconds or no bytes left.
  void advance() {
    double next_event = kNever;
    for (const RunningStep& one : running_) {
      if (one.seconds > 0) next_event = std::min(next_event, one.seconds);
      if (one.moves()) next_event = std::min(next_event, one.num_bytes / one.rate);
    }
    HEARTH_CHECK(next_event < kNever);
    now_ += next_event;
    for (RunningStep& one : running_) {
      if (one.moves()) {
        one.num_bytes -= next_event * one.rate;
        if (one.num_bytes <= kNothing * one.what->num_bytes) one.num_bytes = 0;
      } else if (one.seconds > 0) {
        one.seconds -= next_event;
      }
    }
  }

  std::span<const std::vector<SimulatedStep>> workers_;
  std::span<const double> bytes_per_second_;
  std::vector<std::array<StepQueue, kNumQueues>> lines_;
  std::map<int64_t, int> num_expected_;  ///< for each meeting, the number of workers that take part
  std::vector<RunningStep> running_;
  size_t num_left_ = 0;
  double now_ = 0;
  Replay replay_;
};

}  // namespace

Replay replay(std::span<const std::vector<SimulatedStep>> workers, std::span<const double> bytes_per_second) {
  return Simulator(workers, bytes_per_second).run();
}

}  // namespace hearth::exec
