#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "supervise/supervisor_options.h"
#include "supervise/worker.h"
#include "supervise/worker_context.h"

namespace hearth::supervise {

/// Failure of an attempt: the worker that failed first, and the reason.
struct Failure {
  int attempt = 0;
  int rank = 0;
  int64_t step = 0;            ///< step at which the worker failed
  int64_t newest = 0;          ///< latest step that any worker reached
  bool late = false;           ///< true if the worker exceeded its heartbeat timeout; it may be only slow
  bool out_of_memory = false;  ///< true if the kernel killed the worker because memory ran out
  distributed::Phase phase = distributed::Phase::starting;
  std::string what;  ///< "the worker was killed by SIGSEGV at step 412 while training"
  std::time_t time = std::time(nullptr);
};

/// Parameters of an attempt.
struct AttemptPlan {
  int number = 1;
  double timeout = 1;        ///< factor of all timeouts; doubled after each failure by timeout
  std::vector<int> devices;  ///< for each worker, the index of its device
  /// True if the samples are to be used in another order than in the previous attempt.
  bool new_order = false;
  /// Describes how the previous attempt failed; empty for the first attempt.
  std::string reason;
};

/// The workers of one attempt, and the memory that they share. The destructor kills the workers.
class Attempt {
 public:
  using Work = std::function<int(const WorkerContext&)>;
  /// Forks the workers. `gpus`: shared memory with sensor readings of the GPUs, which the workers may read;
  /// null: none.
  Attempt(AttemptPlan plan, const Work& work, const SupervisorOptions& options,
          const GpuBoard* gpus = nullptr);

  int size() const { return static_cast<int>(plan_.devices.size()); }
  /// Updates the states of all workers without waiting (waitpid).
  void look();
  /// True if any worker was running at the last look().
  bool running() const;
  /// Returns the exit status of the run as soon as it is known, while other workers may still be running.
  std::optional<int> status() const;
  /// Returns the first failure as of the last look(); nothing if there is none. Heartbeats count as missing
  /// from `resumed_at` on: before that, this process was suspended.
  std::optional<Failure> failure(Worker::Clock::time_point resumed_at) const;
  /// True if no worker has results yet that would be lost if it were killed.
  bool starting() const;

  /// Requests all workers to stop (WorkerContext::stop).
  void ask_to_stop() { board_.stop() = true; }
  /// Declares a failed rank missing, so that other workers do not wait for it in collectives.
  void give_up(int rank) {
    if (group_) group_->give_up(rank);
  }
  /// Sends SIGKILL to all running workers.
  void kill_all() const;
  /// Returns a message for each worker that is still running.
  std::vector<std::string> survivors() const;

 private:
  std::optional<int> find_dead() const;
  std::optional<int> find_stopped() const;
  std::optional<int> find_late(Worker::Clock::time_point resumed_at) const;
  double silent_seconds(int rank, Worker::Clock::time_point resumed_at) const;
  double timeout_seconds(int rank) const;
  bool is_running(int rank) const { return workers_[static_cast<size_t>(rank)]->running(); }
  Failure failure_of(int rank, const std::string& describe_exit) const;
  Failure death_of(int rank) const;
  std::string name(int rank) const;
  std::string collective(int rank) const;

  AttemptPlan plan_;
  const SupervisorOptions& options_;
  int64_t num_memory_kills_;  ///< value of SupervisorOptions::num_memory_kills before the workers started
  distributed::HeartbeatBoard board_;
  std::unique_ptr<distributed::ShmGroup> group_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace hearth::supervise
