#include "watch/supervisor.h"

#include <fmt/format.h>

#include <algorithm>

#include "watch/attempt.h"

namespace hearth::watch {
namespace {

using Clock = Worker::Clock;
using namespace std::chrono_literals;

constexpr auto kPoll = 100ms;
/// Behind a longer sleep of its own, the supervisor trusts no clock.
constexpr auto kSleep = 2s;
/// For workers to leave by themselves.
constexpr auto kLeave = 1s;
/// Killed processes are gone by then, unless the kernel has them.
constexpr auto kReap = 5s;
constexpr int kMostAtOneStep = 3;
constexpr int kMostWithoutProgress = 4;

/// The failures of all attempts.
class History {
 public:
  void add(const Failure& failure) {
    num_at_step_ = !all_.empty() && failure.step == all_.back().step ? num_at_step_ + 1 : 1;
    num_in_vain_ = failure.newest > newest_ ? 1 : num_in_vain_ + 1;
    newest_ = std::max(newest_, failure.newest);
    all_.push_back(failure);
  }
  /// Why the last one is enough; empty: it is not.
  std::string why_stop(const SupervisorOptions& options) const {
    if (num_at_step_ >= kMostAtOneStep)
      return fmt::format("{} failures at step {}", num_at_step_, all_.back().step);
    if (num_in_vain_ >= kMostWithoutProgress)
      return fmt::format("{} failures without a step behind {}", num_in_vain_, newest_);
    if (std::ssize(all_) >= options.most_failures) return fmt::format("{} failures", all_.size());
    return "";
  }
  /// A line for each.
  std::string report() const {
    std::string lines;
    for (const Failure& failure : all_)
      lines += fmt::format("\n  attempt {}: {}", failure.attempt, failure.what);
    return lines;
  }

 private:
  std::vector<Failure> all_;
  int64_t newest_ = -1;
  int num_at_step_ = 0;
  int num_in_vain_ = 0;
};

class Supervisor {
 public:
  Supervisor(const Attempt::Work& work, const SupervisorOptions& options) : work_(work), options_(options) {}
  int run();

 private:
  /// Returns when the attempt is decided: with a status, or with what failed.
  struct End {
    int status = kGaveUp;
    std::optional<Failure> failure;
  };
  End watch(Attempt& attempt);
  void rest(std::chrono::milliseconds patience);
  bool wait_for_end(Attempt& attempt, std::chrono::milliseconds patience);
  void end(Attempt& attempt);
  bool probe();
  int give_up(const std::string& why) const;

  const Attempt::Work& work_;
  const SupervisorOptions& options_;
  HeldSignals signals_;
  int num_interrupts_ = 0;
  History history_;
};

int Supervisor::run() {
  double patience = 1;
  for (int number = 1;; ++number) {
    Attempt attempt(number, work_, options_, patience);
    const End found = watch(attempt);
    if (found.failure) {
      options_.say(found.failure->what);
      attempt.give_up(found.failure->rank);
    }
    end(attempt);
    if (!found.failure) return found.status;
    if (num_interrupts_ > 0) return kInterrupted;
    history_.add(*found.failure);
    if (const std::string why = history_.why_stop(options_); !why.empty()) return give_up(why);
    if (!probe()) return num_interrupts_ > 0 ? kInterrupted : give_up("the probe failed");
    if (found.failure->late) patience *= 2;
    options_.say(fmt::format("starting again, attempt {}", number + 1));
  }
}

/// Sleeps until a worker changes, or somebody interrupts, or this long.
void Supervisor::rest(std::chrono::milliseconds patience) {
  const int signal = signals_.next(patience);
  if (signal == SIGINT || signal == SIGTERM) ++num_interrupts_;
}

Supervisor::End Supervisor::watch(Attempt& attempt) {
  Clock::time_point awake = Clock::now(), looked = awake;
  while (true) {
    rest(kPoll);
    const Clock::time_point now = Clock::now();
    if (now - looked > kSleep) awake = now;
    looked = now;
    attempt.look();
    if (num_interrupts_ > 1 || (num_interrupts_ > 0 && attempt.starting())) {
      attempt.kill_all();
      return {.status = kInterrupted};
    }
    if (num_interrupts_ > 0) attempt.ask_to_stop();
    if (const auto status = attempt.status()) return {.status = *status};
    if (auto failure = attempt.failure(awake)) return {.failure = std::move(failure)};
  }
}

bool Supervisor::wait_for_end(Attempt& attempt, std::chrono::milliseconds patience) {
  const auto until = Clock::now() + patience;
  for (attempt.look(); attempt.running() && Clock::now() < until; attempt.look()) rest(kPoll);
  return !attempt.running();
}

void Supervisor::end(Attempt& attempt) {
  if (options_.size > 1 && wait_for_end(attempt, kLeave)) return;
  attempt.kill_all();
  if (wait_for_end(attempt, kReap)) return;
  for (const std::string& sentence : attempt.left()) options_.say(sentence);
}

bool Supervisor::probe() {
  if (!options_.probe) return true;
  Worker worker([&] { return options_.probe() ? 0 : 1; });
  const auto until = Clock::now() + std::chrono::duration<double>(options_.start_seconds);
  for (worker.look(); worker.running() && Clock::now() < until && num_interrupts_ == 0; worker.look())
    rest(kPoll);
  return worker.exit_status() == 0;
}

int Supervisor::give_up(const std::string& why) const {
  options_.say(fmt::format("not started again: {}{}", why, history_.report()));
  return kGaveUp;
}

}  // namespace

int supervise(const std::function<int(const Seat&)>& work, const SupervisorOptions& options) {
  return Supervisor(work, options).run();
}

}  // namespace hearth::watch
