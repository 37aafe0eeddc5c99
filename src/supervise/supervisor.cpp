#include "supervise/supervisor.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "supervise/attempt.h"
#include "supervise/gpu_watch.h"

namespace hearth::supervise {
namespace {

using Clock = Worker::Clock;
using namespace std::chrono_literals;

constexpr auto kPoll = 100ms;
/// If more time passes between two polls, this process was suspended, and the timeouts of workers start
/// again.
constexpr auto kSleep = 2s;
/// Time that workers get to exit by themselves, before they are killed.
constexpr auto kLeave = 1s;
/// Time to wait for killed processes to end.
constexpr auto kReap = 5s;
constexpr int kMaxFailuresAtStep = 3;
constexpr int kMaxFailuresWithoutProgress = 4;
/// Exit status of a probe process whose device failed the test.
constexpr int kFailedProbe = 1;

/// The failures of all attempts so far, which determine whether another attempt is made.
class History {
 public:
  void add(const Failure& failure) {
    num_at_step_ = !all_.empty() && failure.step == all_.back().step ? num_at_step_ + 1 : 1;
    failures_without_progress_ = failure.newest > newest_ ? 1 : failures_without_progress_ + 1;
    newest_ = std::max(newest_, failure.newest);
    all_.push_back(failure);
  }
  /// True if the last two failures were at the same step, so that the data may be their cause.
  bool wants_new_order() const {
    return num_at_step_ == kMaxFailuresAtStep - 1 && all_.back().phase == distributed::Phase::training;
  }
  /// Returns the reason why no further attempt is made; empty if one is.
  std::string why_stop(const SupervisorOptions& options) const {
    if (num_at_step_ >= kMaxFailuresAtStep)
      return fmt::format("{} failures at step {}", num_at_step_, all_.back().step);
    if (failures_without_progress_ >= kMaxFailuresWithoutProgress)
      return fmt::format("{} failures without progress beyond step {}", failures_without_progress_, newest_);
    if (std::ssize(all_) >= options.max_failures) return fmt::format("{} failures", all_.size());
    return "";
  }
  /// Returns advice to add to the message about the last failure; empty if there is none.
  std::string advice() const {
    return all_.back().out_of_memory ? "; try a lower train.batch with a higher train.accumulate" : "";
  }
  /// Lists all failures, one per line.
  std::string report() const {
    std::string lines;
    for (const Failure& failure : all_)
      lines += fmt::format("\n  attempt {}, {:%F %T}: {}", failure.attempt, fmt::localtime(failure.time),
                           failure.what);
    return lines;
  }

 private:
  std::vector<Failure> all_;
  int64_t newest_ = -1;
  int num_at_step_ = 0;
  int failures_without_progress_ = 0;
};

/// The parent process of all workers. For each attempt, it forks the workers and polls their state and
/// heartbeats every kPoll. After a failure it ends the attempt, tests the devices, and starts the next
/// attempt on those that work. It opens no device and starts no thread, so that forking is safe and a faulty
/// driver cannot block it.
class Supervisor {
 public:
  Supervisor(const Attempt::Work& work, const SupervisorOptions& options)
      : work_(work), options_(options), devices_(static_cast<size_t>(options.size)) {
    std::iota(devices_.begin(), devices_.end(), 0);
    if (options.watch_gpus) gpus_.emplace(options.sensors, options.limits, options.say);
  }
  int run();

 private:
  /// Result of watch(): the exit status of the run, or the failure of an attempt.
  struct WatchResult {
    int status = kGaveUp;
    std::optional<Failure> failure;
  };
  WatchResult watch(Attempt& attempt);
  void rest(std::chrono::milliseconds timeout);
  bool wait_for_end(Attempt& attempt, std::chrono::milliseconds timeout);
  void end(Attempt& attempt);
  void probe();
  AttemptPlan plan_after(const AttemptPlan& failed, const Failure& failure) const;
  std::string devices_sentence(const AttemptPlan& plan) const;
  std::string start_sentence(const AttemptPlan& plan) const;
  int give_up(const std::string& why) const;

  const Attempt::Work& work_;
  const SupervisorOptions& options_;
  BlockedSignals signals_;
  int num_interrupts_ = 0;
  History history_;
  std::vector<int> devices_;  ///< indices of the devices that are not disabled
  std::optional<GpuWatch> gpus_;
};

int Supervisor::run() {
  AttemptPlan plan{.devices = devices_};
  while (true) {
    if (gpus_) gpus_->board().clear();
    Attempt attempt(plan, work_, options_, gpus_ ? &gpus_->board() : nullptr);
    const WatchResult found = watch(attempt);
    if (found.failure) {
      options_.say(found.failure->what);
      options_.report_failure(found.failure->what);
      attempt.give_up(found.failure->rank);
    }
    end(attempt);
    if (!found.failure) return found.status;
    if (num_interrupts_ > 0) return kInterrupted;
    history_.add(*found.failure);
    if (const std::string why = history_.why_stop(options_); !why.empty()) return give_up(why);
    probe();
    if (num_interrupts_ > 0) return kInterrupted;
    plan = plan_after(plan, *found.failure);
    if (plan.devices.empty())
      return give_up(fmt::format("only {1} of {0} devices work", options_.size, devices_.size()));
    options_.say(start_sentence(plan));
  }
}

AttemptPlan Supervisor::plan_after(const AttemptPlan& failed, const Failure& failure) const {
  AttemptPlan plan{.number = failed.number + 1,
                   .timeout = failed.timeout * (failure.late ? 2 : 1),
                   .devices = devices_,
                   .new_order = history_.wants_new_order(),
                   .reason = failure.what};
  plan.devices.resize(static_cast<size_t>(options_.num_workers(static_cast<int>(devices_.size()))));
  if (plan.devices.size() < failed.devices.size()) plan.reason += fmt::format("; {}", devices_sentence(plan));
  return plan;
}

/// Describes which devices the attempt uses, if some are disabled.
std::string Supervisor::devices_sentence(const AttemptPlan& plan) const {
  return fmt::format("device{} {} of {} do{} all the work", plan.devices.size() == 1 ? "" : "s",
                     fmt::join(plan.devices, ", "), options_.size, plan.devices.size() == 1 ? "es" : "");
}

std::string Supervisor::start_sentence(const AttemptPlan& plan) const {
  std::string text = fmt::format("restarting (attempt {})", plan.number);
  if (std::ssize(plan.devices) < options_.size) text += ": " + devices_sentence(plan);
  if (plan.new_order) text += "; the same step failed twice, so the samples get another order";
  return text;
}

/// Sleeps until a worker's state changes, a signal arrives, or `timeout` has passed.
void Supervisor::rest(std::chrono::milliseconds timeout) {
  const int signal = signals_.next(timeout);
  if (signal == SIGINT || signal == SIGTERM) ++num_interrupts_;
  if (signal != SIGHUP) return;
  num_interrupts_ = std::max(num_interrupts_, 1);
  // Otherwise a second SIGHUP would kill this process after the signals are unblocked.
  std::signal(SIGHUP, SIG_IGN);
}

Supervisor::WatchResult Supervisor::watch(Attempt& attempt) {
  Clock::time_point resumed_at = Clock::now(), looked = resumed_at;
  while (true) {
    rest(kPoll);
    const Clock::time_point now = Clock::now();
    if (now - looked > kSleep) resumed_at = now;
    looked = now;
    attempt.look();
    if (gpus_) gpus_->look(attempt.size());
    if (num_interrupts_ > 1 || (num_interrupts_ > 0 && attempt.starting())) {
      attempt.kill_all();
      return {.status = kInterrupted};
    }
    if (num_interrupts_ > 0) attempt.ask_to_stop();
    if (const auto status = attempt.status()) return {.status = *status};
    if (auto failure = attempt.failure(resumed_at)) return {.failure = std::move(failure)};
  }
}

bool Supervisor::wait_for_end(Attempt& attempt, std::chrono::milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  for (attempt.look(); attempt.running() && Clock::now() < until; attempt.look()) rest(kPoll);
  return !attempt.running();
}

void Supervisor::end(Attempt& attempt) {
  if (attempt.size() > 1 && wait_for_end(attempt, kLeave)) return;
  attempt.kill_all();
  if (wait_for_end(attempt, kReap)) return;
  for (const std::string& sentence : attempt.survivors()) options_.say(sentence);
}

/// Tests all devices in separate processes, and disables those that fail.
void Supervisor::probe() {
  if (!options_.probe) return;
  std::vector<std::unique_ptr<Worker>> probes;
  for (const int device : devices_)
    probes.push_back(std::make_unique<Worker>([&] { return options_.probe(device) ? kDone : kFailedProbe; }));
  const auto until = Clock::now() + std::chrono::duration<double>(options_.probe_seconds);
  const auto look = [&] {
    for (const auto& probe : probes) probe->look();
    return std::ranges::any_of(probes, &Worker::running);
  };
  while (look() && Clock::now() < until && num_interrupts_ == 0) rest(kPoll);
  if (num_interrupts_ > 0) return;
  std::vector<int> passed;
  for (size_t i = 0; i < probes.size(); ++i) {
    const Worker& probe = *probes[i];
    if (!probe.running() && probe.exit_status() == kDone) {
      passed.push_back(devices_[i]);
    } else {
      options_.say(fmt::format("device {} disabled: its probe {}", devices_[i],
                               probe.running() ? "gave no answer" : probe.describe_exit()));
    }
  }
  devices_ = passed;
}

int Supervisor::give_up(const std::string& why) const {
  options_.say(fmt::format("giving up: {}{}{}", why, history_.advice(), history_.report()));
  return kGaveUp;
}

}  // namespace

int supervise(const std::function<int(const WorkerContext&)>& work, const SupervisorOptions& options) {
  return Supervisor(work, options).run();
}

}  // namespace hearth::supervise
