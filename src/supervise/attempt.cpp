#include "supervise/attempt.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/control_group.h"
#include "base/text.h"
#include "distributed/shm/memory.h"

namespace hearth::supervise {
namespace {

using distributed::Heartbeat;
using distributed::Phase;

/// Timeout of a heartbeat as a multiple of the longest interval so far.
constexpr double kTimeoutFactor = 20;
/// Min multiple of the longest interval between heartbeats. Used if kTimeoutFactor times that interval
/// exceeds the timeout for phases without heartbeats (SupervisorOptions::start_seconds).
constexpr double kMinTimeoutFactor = 3;
/// Number of intervals after which their length is used. The first one is not typical, because it includes
/// loading.
constexpr int64_t kMinIntervals = 2;

bool has_rhythm(Phase phase) { return phase == Phase::training || phase == Phase::evaluating; }

double seconds_between(Worker::Clock::time_point from, Worker::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

Attempt::Attempt(AttemptPlan plan, const Work& work, const SupervisorOptions& options, const GpuBoard* gpus)
    : plan_(std::move(plan)),
      options_(options),
      num_memory_kills_(options.num_memory_kills()),
      board_(size()) {
  if (size() > 1) group_ = std::make_unique<distributed::ShmGroup>(size(), options.group);
  for (int rank = 0; rank < size(); ++rank) {
    const WorkerContext worker_context{.rank = rank,
                                       .size = size(),
                                       .device = plan_.devices[static_cast<size_t>(rank)],
                                       .attempt = plan_.number,
                                       .new_order = plan_.new_order,
                                       .reason = plan_.reason,
                                       .heartbeat = Heartbeat(board_.entry(rank)),
                                       .stop = &board_.stop(),
                                       .said = &board_.said(),
                                       .group = group_.get(),
                                       .gpus = gpus};
    workers_.push_back(std::make_unique<Worker>([&] { return work(worker_context); }));
  }
}

void Attempt::look() {
  for (const auto& worker : workers_) worker->look();
}

bool Attempt::running() const {
  return std::ranges::any_of(workers_, [](const auto& worker) { return worker->running(); });
}

std::optional<int> Attempt::status() const {
  for (const auto& worker : workers_) {
    const int status = worker->exit_status();
    const bool is_leaders = worker == workers_.front() && (status == kDone || status == kInterrupted);
    if (status == kMistake || is_leaders) return status;
  }
  return std::nullopt;
}

bool Attempt::starting() const {
  for (int rank = 0; rank < size(); ++rank) {
    const Heartbeat::Entry& entry = board_.entry(rank);
    const bool prepares = entry.phase == Phase::encoding && entry.step == 0;
    if (entry.phase != Phase::starting && !prepares) return false;
  }
  return true;
}

void Attempt::kill_all() const {
  for (const auto& worker : workers_)
    if (worker->running()) worker->kill_now();
}

std::vector<std::string> Attempt::survivors() const {
  std::vector<std::string> sentences;
  for (int rank = 0; rank < size(); ++rank) {
    if (!is_running(rank)) continue;
    sentences.push_back(fmt::format("{} (process {}) survived SIGKILL; giving up on it", name(rank),
                                    workers_[static_cast<size_t>(rank)]->process()));
  }
  return sentences;
}

std::optional<Failure> Attempt::failure(Worker::Clock::time_point resumed_at) const {
  if (const auto rank = find_dead()) return death_of(*rank);
  if (const auto rank = find_stopped())
    return failure_of(*rank, workers_[static_cast<size_t>(*rank)]->describe_exit());
  const auto rank = find_late(resumed_at);
  if (!rank) return std::nullopt;
  Failure failure =
      failure_of(*rank, fmt::format("made no progress for {:.1f} s", silent_seconds(*rank, resumed_at)));
  failure.late = true;
  return failure;
}

Failure Attempt::death_of(int rank) const {
  const Worker& worker = *workers_[static_cast<size_t>(rank)];
  const bool is_memory = worker.was_killed() && options_.num_memory_kills() > num_memory_kills_;
  if (!is_memory) return failure_of(rank, worker.describe_exit());
  const auto limit = memory_limit();
  Failure failure = failure_of(
      rank, fmt::format("was killed by the kernel because memory ran out{}",
                        limit ? fmt::format(" (the limit is {})", human_bytes(*limit)) : std::string()));
  failure.out_of_memory = true;
  return failure;
}

/// Returns the rank of a worker that has failed, if any. Prefers one that was killed by a signal, because
/// others may have failed as a consequence.
std::optional<int> Attempt::find_dead() const {
  std::optional<int> found;
  for (int rank = 0; rank < size(); ++rank) {
    const Worker& worker = *workers_[static_cast<size_t>(rank)];
    if (worker.running()) continue;
    const int status = worker.exit_status();
    if (status < 0) return rank;
    if (!found && status != kDone && status != kInterrupted) found = rank;
  }
  return found;
}

std::optional<int> Attempt::find_stopped() const {
  for (int rank = 0; rank < size(); ++rank) {
    const auto stopped = workers_[static_cast<size_t>(rank)]->stopped();
    if (stopped && seconds_between(*stopped, Worker::Clock::now()) > options_.stopped_seconds) return rank;
  }
  return std::nullopt;
}

/// Returns the rank of the worker that is stuck, once the timeouts of all running workers have passed.
/// Workers in collectives wait for each other, so the stuck one is a worker outside of any collective; among
/// several, the one at the lowest step, and then the one whose last heartbeat is oldest.
std::optional<int> Attempt::find_late(Worker::Clock::time_point resumed_at) const {
  std::optional<int> found;
  const auto blame_key = [&](int rank) {
    return std::tuple(!collective(rank).empty(), board_.entry(rank).step.load(),
                      -silent_seconds(rank, resumed_at));
  };
  for (int rank = 0; rank < size(); ++rank) {
    if (!is_running(rank)) continue;
    // The timeout is read before the last heartbeat, because a worker sends a heartbeat before it changes its
    // phase.
    const double timeout = timeout_seconds(rank);
    if (silent_seconds(rank, resumed_at) <= timeout) return std::nullopt;
    if (!found || blame_key(rank) < blame_key(*found)) found = rank;
  }
  return found;
}

double Attempt::silent_seconds(int rank, Worker::Clock::time_point resumed_at) const {
  const int64_t beat = board_.entry(rank).time_ns.load();
  const int64_t from = std::max(beat, std::chrono::nanoseconds(resumed_at.time_since_epoch()).count());
  return 1e-9 * static_cast<double>(Heartbeat::now_ns() - from);
}

double Attempt::timeout_seconds(int rank) const {
  const Heartbeat::Entry& entry = board_.entry(rank);
  const Phase phase = entry.phase;
  if (phase == Phase::reporting || phase == Phase::encoding) return std::numeric_limits<double>::infinity();
  const Heartbeat::Learned& learned = entry.learned.at(static_cast<size_t>(phase));
  if (!has_rhythm(phase)) return plan_.timeout * options_.start_seconds;
  const double start = std::max(options_.start_seconds, 1e-9 * static_cast<double>(entry.allowed_ns.load()));
  if (learned.num_rounds < kMinIntervals) return plan_.timeout * start;
  const double longest = 1e-9 * static_cast<double>(learned.longest_ns.load());
  const double most = std::max(start, kMinTimeoutFactor * longest);
  return plan_.timeout * std::max(options_.min_timeout_seconds, std::min(kTimeoutFactor * longest, most));
}

Failure Attempt::failure_of(int rank, const std::string& describe_exit) const {
  const Heartbeat::Entry& entry = board_.entry(rank);
  Failure failure{.attempt = plan_.number, .rank = rank, .step = entry.step, .phase = entry.phase};
  failure.what = fmt::format("{} {} at step {} while {}", name(rank), describe_exit, failure.step,
                             distributed::kPhaseNames.at(static_cast<size_t>(entry.phase.load())));
  if (const std::string where = collective(rank); !where.empty()) failure.what += ", in " + where;
  bool is_reported = false;
  for (int other = 0; other < size(); ++other) {
    failure.newest = std::max(failure.newest, board_.entry(other).step.load());
    const std::string where = collective(other);
    if (other == rank || is_reported || where.empty()) continue;
    failure.what += fmt::format("; {} waited {:.1f} s in {}", name(other), silent_seconds(other, {}), where);
    is_reported = true;
  }
  return failure;
}

std::string Attempt::name(int rank) const {
  return size() == 1 ? "the worker" : fmt::format("worker {}", rank);
}

/// Describes the collective in which a rank waits; empty if it is in none.
std::string Attempt::collective(int rank) const {
  const bool waits = group_ && group_->memory().board(rank).kind != distributed::ShmKind::none;
  return waits ? group_->whereabouts(rank) : "";
}

}  // namespace hearth::supervise
