#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervise/seat.h"
#include "supervise/supervisor_options.h"
#include "supervise/worker.h"

namespace hearth::supervise {

/// Why an attempt came to nothing.
struct Failure {
  int attempt = 0;
  int rank = 0;
  int64_t step = 0;            ///< at which the worker failed
  int64_t newest = 0;          ///< latest step that any worker reached
  bool late = false;           ///< the worker missed its deadline; it may be only slow
  bool out_of_memory = false;  ///< the kernel killed it because memory ran out
  distributed::Phase phase = distributed::Phase::starting;
  std::string what;  ///< "the worker was killed by SIGSEGV at step 412 while training"
  std::time_t time = std::time(nullptr);
};

/// What an attempt does otherwise than others.
struct AttemptPlan {
  int number = 1;
  double patience = 1;       ///< deadlines are so many times as long as the options say
  std::vector<int> devices;  ///< of each worker
  bool new_order = false;
  std::string reason;
};

/// The workers of one attempt, and what they share. They end with it.
class Attempt {
 public:
  using Work = std::function<int(const Seat&)>;
  /// `gpus`: what its workers get; null: none.
  Attempt(AttemptPlan plan, const Work& work, const SupervisorOptions& options,
          const GpuBoard* gpus = nullptr);

  int size() const { return static_cast<int>(plan_.devices.size()); }
  void look();
  bool running() const;
  /// What the run ends with, once that is decided; others may still run.
  std::optional<int> status() const;
  /// As of the last look(). Deadlines count from `awake` on at the earliest: before, nobody looked.
  std::optional<Failure> failure(Worker::Clock::time_point awake) const;
  /// Whether no worker has anything to leave behind.
  bool starting() const;

  void ask_to_stop() { board_.stop() = true; }
  /// Ends the waits for a rank that failed.
  void give_up(int rank) {
    if (group_) group_->give_up(rank);
  }
  void kill_all() const;
  /// Sentences on the workers that run.
  std::vector<std::string> left() const;

 private:
  std::optional<int> find_dead() const;
  std::optional<int> find_stopped() const;
  std::optional<int> find_late(Worker::Clock::time_point awake) const;
  double silent_seconds(int rank, Worker::Clock::time_point awake) const;
  double patience_seconds(int rank) const;
  bool is_running(int rank) const { return workers_[static_cast<size_t>(rank)]->running(); }
  Failure failure_of(int rank, const std::string& fate) const;
  Failure death_of(int rank) const;
  std::string name(int rank) const;
  std::string collective(int rank) const;

  AttemptPlan plan_;
  const SupervisorOptions& options_;
  int64_t num_memory_kills_;  ///< count before the workers started
  distributed::HeartbeatBoard board_;
  std::unique_ptr<distributed::ShmGroup> group_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace hearth::supervise
