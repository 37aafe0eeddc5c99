#include "supervise/supervisor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/error.h"

namespace hearth::supervise {
namespace {

using distributed::Phase;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using namespace std::chrono_literals;

using Work = std::function<int(const WorkerContext&)>;

void sleep_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
[[noreturn]] void hang() {
  while (true) sleep_for(1);
}

class SupervisorOf : public testing::TestWithParam<int> {};

class Supervisor : public testing::Test {
 protected:
  int supervise_workers(const Work& work) { return supervise(work, options_); }

  std::vector<std::string> said_;
  SupervisorOptions options_{.say = [this](const std::string& text) { said_.push_back(text); }};
};

TEST_F(Supervisor, PassesOnALastWord) {
  for (const int status : {kDone, kMistake, kInterrupted}) {
    EXPECT_EQ(supervise_workers([&](const WorkerContext&) { return status; }), status);
  }
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Supervisor, EndsTheOthersBehindALastWord) {
  options_.size = 2;
  for (const auto& [who, status] : {std::pair(0, kDone), std::pair(1, kMistake)}) {
    const auto work = [who = who, status = status](const WorkerContext& worker_context) {
      if (worker_context.rank != who) hang();
      return status;
    };
    EXPECT_EQ(supervise_workers(work), status);
  }
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Supervisor, WaitsForTheLeader) {
  options_.size = 2;
  const auto work = [](const WorkerContext& worker_context) {
    if (worker_context.rank == 1) return kInterrupted;
    sleep_for(0.3);
    return kDone;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
}

TEST_F(Supervisor, StartsAgainBehindADeath) {
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.heartbeat.beat(Phase::training, 10 * worker_context.attempt);
    if (worker_context.attempt == 1) raise(SIGKILL);
    if (worker_context.attempt == 2) return 71;
    return worker_context.attempt == 3 ? kDone : kMistake;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
  EXPECT_THAT(
      said_,
      ElementsAre("the worker was killed by SIGKILL at step 10 while training", "restarting (attempt 2)",
                  "the worker ended with status 71 at step 20 while training", "restarting (attempt 3)"));
}

/// Rank 1 does `trouble` in the first attempt, while rank 0 waits for it.
Work with_trouble(const std::function<void(const WorkerContext&)>& trouble) {
  return [=](const WorkerContext& worker_context) {
    worker_context.heartbeat.beat(Phase::training, 412);
    if (worker_context.rank == 1 && worker_context.attempt == 1) trouble(worker_context);
    const auto transport = worker_context.group->open(worker_context.rank);
    transport->set_collective_id({.step = 412, .index = 3});
    try {
      transport->barrier();
    } catch (const distributed::CommError&) {
      return 69;
    }
    return kDone;
  };
}

TEST_F(Supervisor, NamesAStoppedWorkerAndWhoWaitedForIt) {
  options_.size = 2;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(supervise_workers(with_trouble([](const WorkerContext&) { raise(SIGSTOP); })), kDone);
  // The timeout alone would take 600 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 300s);
  ASSERT_FALSE(said_.empty());
  EXPECT_THAT(said_[0], AllOf(HasSubstr("worker 1 was stopped by SIGSTOP at step 412 while training; "),
                              HasSubstr("; worker 0 waited "), HasSubstr(" s in barrier 3 of step 412")));
}

TEST_F(Supervisor, NamesTheOneThatHangsAndThenHasMorePatience) {
  options_.size = 2;
  options_.start_seconds = 2;
  const auto work = with_trouble([](const WorkerContext&) { hang(); });
  const auto slow = [&](const WorkerContext& worker_context) {
    if (worker_context.attempt == 2) sleep_for(2.5);
    return work(worker_context);
  };
  EXPECT_EQ(supervise_workers(slow), kDone);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_THAT(said_[0], AllOf(HasSubstr("worker 1 made no progress for 2."), HasSubstr("at step 412"),
                              HasSubstr("worker 0 waited")));
}

TEST_F(Supervisor, LearnsHowLongStepsTake) {
  options_.start_seconds = 30;
  options_.min_timeout_seconds = 1;
  const auto work = [](const WorkerContext& worker_context) {
    for (int64_t step = 0; step < 20; ++step) {
      worker_context.heartbeat.beat(Phase::training, step);
      sleep_for(0.001);
    }
    // What has no rhythm may take longer.
    worker_context.heartbeat.beat(Phase::saving, 20);
    sleep_for(0.5);
    worker_context.heartbeat.beat(Phase::training, 20);
    if (worker_context.attempt == 1) hang();
    return kDone;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_THAT(said_[0], AllOf(HasSubstr("made no progress for "), HasSubstr(" s at step 20 while training"),
                              Not(HasSubstr("for 30."))));
}

TEST_F(Supervisor, TakesAWorkersWordForHowLongItsStepsAre) {
  options_.start_seconds = 0.5;
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.heartbeat.allow(worker_context.attempt == 1 ? 3600 : 0);
    worker_context.heartbeat.beat(Phase::training, 412);
    sleep_for(2);
    // That was of steps; for what has no rhythm it counts for nothing.
    worker_context.heartbeat.beat(Phase::saving, 413);
    if (worker_context.attempt == 1) hang();
    return kDone;
  };
  options_.max_failures = 2;
  EXPECT_EQ(supervise_workers(work), kGaveUp);
  ASSERT_EQ(said_.size(), 4U);
  EXPECT_THAT(said_[0], HasSubstr("at step 413 while saving"));
  EXPECT_THAT(said_[2], HasSubstr("at step 412 while training"));
}

TEST_F(Supervisor, LetsAReaderTakeItsTime) {
  options_.size = 2;
  options_.start_seconds = 1;
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.heartbeat.beat(Phase::training, 412);
    if (worker_context.rank == 0) {
      const Phase before = worker_context.heartbeat.switch_phase(Phase::reporting);
      sleep_for(2);
      worker_context.heartbeat.switch_phase(before);
    }
    worker_context.group->open(worker_context.rank)->barrier();
    return kDone;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(Supervisor, IsWatchfulAgainBehindAReport) {
  options_.start_seconds = 1;
  const auto work = [](const WorkerContext& worker_context) {
    worker_context.heartbeat.beat(Phase::training, 412);
    worker_context.heartbeat.switch_phase(worker_context.heartbeat.switch_phase(Phase::reporting));
    if (worker_context.attempt == 1) hang();
    return kDone;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_THAT(said_[0], HasSubstr(" s at step 412 while training"));
}

/// Dies at steps.at(attempt - 1), and is done after them.
Work dies_at(const std::vector<int64_t>& steps) {
  return [=](const WorkerContext& worker_context) {
    if (worker_context.attempt > std::ssize(steps)) return kDone;
    worker_context.heartbeat.beat(Phase::training, steps[static_cast<size_t>(worker_context.attempt - 1)]);
    raise(SIGKILL);
    return kDone;
  };
}

TEST_F(Supervisor, GivesUpWhereAFailureComesBack) {
  EXPECT_EQ(supervise_workers(dies_at({5, 7, 7, 7})), kGaveUp);
  EXPECT_THAT(said_.back(), AllOf(HasSubstr("3 failures at step 7"), HasSubstr("\n  attempt 1, 20"),
                                  HasSubstr(": the worker was killed by SIGKILL at step 5 while training"),
                                  HasSubstr("\n  attempt 4, 20")));
}

TEST_F(Supervisor, SaysThatTheKernelKilledAWorkerForMemory) {
  int64_t num_kills = 4;
  options_.num_memory_kills = [&] { return num_kills++; };
  EXPECT_EQ(supervise_workers(dies_at({7, 7, 7})), kGaveUp);
  EXPECT_THAT(said_.front(), AllOf(HasSubstr("the worker was killed by the kernel because memory ran out"),
                                   HasSubstr(" at step 7 while training")));
  EXPECT_THAT(said_.back(), HasSubstr("3 failures at step 7; try a lower train.batch"));
}

TEST_F(Supervisor, AsksForAnotherOrderWhereTrainingFailsTwiceAtAStep) {
  const auto work = [](const WorkerContext& worker_context) {
    // What this process expects is lost with it, so that its last word says it.
    if (worker_context.new_order != (worker_context.attempt == 4 || worker_context.attempt == 8))
      return kMistake;
    if (worker_context.attempt > 8) return kDone;
    const std::array<int64_t, 8> steps = {5, 7, 7, 8, 9, 10, 10, 11};
    worker_context.heartbeat.beat(Phase::training, steps.at(static_cast<size_t>(worker_context.attempt - 1)));
    raise(SIGKILL);
    return kDone;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
  EXPECT_THAT(said_, testing::Contains("restarting (attempt 4); the same step failed twice, so the "
                                       "samples get another order"));
}

TEST_F(Supervisor, KeepsTheOrderWhereItFailsTwiceOutsideOfTraining) {
  const auto work = [](const WorkerContext& worker_context) {
    if (worker_context.attempt == 3) return worker_context.new_order ? kMistake : kDone;
    worker_context.heartbeat.beat(Phase::saving, 7);
    return 71;
  };
  EXPECT_EQ(supervise_workers(work), kDone);
}

TEST_F(Supervisor, GivesUpWithoutProgress) {
  EXPECT_EQ(supervise_workers(dies_at({9, 8, 7, 8})), kGaveUp);
  EXPECT_THAT(said_.back(), HasSubstr("4 failures without progress beyond step 9"));
  EXPECT_EQ(supervise_workers(dies_at({9, 8, 7, 10, 8, 7, 11, 12, 12, 13})), kDone);
  options_.max_failures = 2;
  EXPECT_EQ(supervise_workers(dies_at({1, 2})), kGaveUp);
}

/// Rank 0 dies in the first attempt; later ones expect `devices`.
Work goes_on_with(const std::vector<int>& devices) {
  return [=](const WorkerContext& worker_context) {
    worker_context.heartbeat.beat(Phase::training, 1);
    if (worker_context.attempt == 1 && worker_context.rank == 0) raise(SIGKILL);
    if (worker_context.attempt == 1) hang();
    const bool right = worker_context.size == std::ssize(devices) &&
                       worker_context.device == devices[static_cast<size_t>(worker_context.rank)];
    return right ? kDone : kMistake;
  };
}

TEST_F(Supervisor, LeavesOutDevicesThatFailTheirProbe) {
  options_.size = 4;
  options_.probe_seconds = 0.5;
  options_.probe = [](int device) -> bool {
    if (device == 1) std::abort();
    if (device == 2) hang();
    return true;
  };
  EXPECT_EQ(supervise_workers(goes_on_with({0, 3})), kDone);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("worker 0 was killed by SIGKILL"),
                                 "device 1 disabled: its probe was killed by SIGABRT",
                                 "device 2 disabled: its probe gave no answer",
                                 "restarting (attempt 2): devices 0, 3 of 4 do all the work"));
}

TEST_F(Supervisor, GoesOnWithAsManyDevicesAsTheWorkAllows) {
  options_.size = 4;
  options_.probe = [](int device) { return device != 0; };
  options_.num_workers = [](int num_devices) { return num_devices == 3 ? 2 : 0; };
  EXPECT_EQ(supervise_workers(goes_on_with({1, 2})), kDone);
  options_.probe = [](int device) { return device < 2; };
  EXPECT_EQ(supervise_workers(goes_on_with({})), kGaveUp);
  EXPECT_THAT(said_.back(), HasSubstr("giving up: only 2 of 4 devices work"));
}

/// A supervisor in a process of its own, whose workers write to a pipe.
class Supervising {
 public:
  /// hangup: what the process that supervises does at SIGHUP, whatever the tests run under (nohup).
  Supervising(int size, const std::function<int(const WorkerContext&, int pipe)>& work,
              sighandler_t hangup = SIG_DFL) {
    if (pipe(pipe_.data()) != 0) std::abort();
    std::fflush(nullptr);
    process_ = fork();
    if (process_ == 0) {
      close(pipe_[0]);
      std::signal(SIGHUP, hangup);
      _exit(supervise([&](const WorkerContext& worker_context) { return work(worker_context, pipe_[1]); },
                      {.size = size}));
    }
    close(pipe_[1]);
  }
  ~Supervising() {
    close(pipe_[0]);
    if (process_ <= 0) return;
    send(SIGKILL);
    wait();
  }
  Supervising(const Supervising&) = delete;
  Supervising& operator=(const Supervising&) = delete;

  void send(int signal) const { kill(process_, signal); }
  /// Waits for bytes; how many there were before every writer had ended; -1: none came for long.
  int64_t read_bytes(int64_t most) const {
    char byte = 0;
    int64_t count = 0;
    pollfd ready{.fd = pipe_[0], .events = POLLIN};
    while (count < most) {
      if (poll(&ready, 1, 20'000) != 1) return -1;
      if (read(pipe_[0], &byte, 1) != 1) break;
      ++count;
    }
    return count;
  }
  int wait() {
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  std::array<int, 2> pipe_{};
  pid_t process_ = -1;
};

int64_t tell(int pipe) { return write(pipe, "x", 1); }

void wait_for_stop(const WorkerContext& worker_context, int pipe) {
  worker_context.heartbeat.beat(Phase::training, 1);
  tell(pipe);
  while (!*worker_context.stop) sleep_for(0.001);
}

TEST_P(SupervisorOf, TakesItsWorkersWithIt) {
  Supervising supervising(GetParam(), [](const WorkerContext&, int pipe) -> int {
    tell(pipe);
    hang();
  });
  EXPECT_EQ(supervising.read_bytes(GetParam()), GetParam());
  supervising.send(SIGKILL);
  supervising.wait();
  // The pipe ends when nobody has it.
  EXPECT_EQ(supervising.read_bytes(1), 0);
}

TEST_P(SupervisorOf, AsksToStopOnce) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    Supervising supervising(GetParam(), [](const WorkerContext& worker_context, int pipe) {
      wait_for_stop(worker_context, pipe);
      tell(pipe);
      return kInterrupted;
    });
    supervising.read_bytes(GetParam());
    supervising.send(signal);
    EXPECT_EQ(supervising.read_bytes(GetParam()), GetParam());
    EXPECT_EQ(supervising.wait(), kInterrupted);
  }
}

TEST_P(SupervisorOf, EndsWorkersAtTheSecondSignal) {
  Supervising supervising(GetParam(), [](const WorkerContext& worker_context, int pipe) -> int {
    wait_for_stop(worker_context, pipe);
    tell(pipe);
    hang();
  });
  supervising.read_bytes(GetParam());
  supervising.send(SIGINT);
  supervising.read_bytes(GetParam());
  supervising.send(SIGINT);
  EXPECT_EQ(supervising.wait(), kInterrupted);
  EXPECT_EQ(supervising.read_bytes(1), 0);
}

TEST_P(SupervisorOf, EndsWorkersThatEncodeBeforeTheyTrainAtTheFirstSignal) {
  Supervising supervising(GetParam(), [](const WorkerContext& worker_context, int pipe) -> int {
    if (worker_context.rank == 0) worker_context.heartbeat.switch_phase(distributed::Phase::encoding);
    tell(pipe);
    hang();
  });
  supervising.read_bytes(GetParam());
  supervising.send(SIGINT);
  EXPECT_EQ(supervising.wait(), kInterrupted);
}

TEST_P(SupervisorOf, TakesHangupsForOneWish) {
  Supervising supervising(GetParam(), [](const WorkerContext& worker_context, int pipe) {
    wait_for_stop(worker_context, pipe);
    tell(pipe);
    sleep_for(0.5);
    tell(pipe);
    return kInterrupted;
  });
  supervising.read_bytes(GetParam());
  supervising.send(SIGHUP);
  supervising.read_bytes(GetParam());
  supervising.send(SIGHUP);
  EXPECT_GE(supervising.read_bytes(GetParam()), 1);
  EXPECT_EQ(supervising.wait(), kInterrupted);
}

TEST_P(SupervisorOf, IgnoresHangupsWhereTheyAreIgnored) {
  const auto work = [](const WorkerContext& worker_context, int pipe) {
    worker_context.heartbeat.beat(Phase::training, 1);
    tell(pipe);
    sleep_for(0.5);
    return *worker_context.stop ? kInterrupted : kDone;
  };
  Supervising supervising(GetParam(), work, SIG_IGN);
  supervising.read_bytes(GetParam());
  supervising.send(SIGHUP);
  EXPECT_EQ(supervising.wait(), kDone);
}

/// As a user who may have no more processes: the limit does not hold for root.
int supervise_without_processes() {
  const rlimit none{0, 0};
  if ((geteuid() == 0 && setuid(54321) != 0) || setrlimit(RLIMIT_NPROC, &none) != 0) return 1;
  try {
    return supervise([](const WorkerContext&) { return kDone; }, {});
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

TEST(SupervisorAlone, WithoutAProcessForAWorkerThereIsASentence) {
  EXPECT_EXIT(std::_Exit(supervise_without_processes()), testing::ExitedWithCode(2),
              "^cannot start a worker process: .*ulimit -u");
}

INSTANTIATE_TEST_SUITE_P(Workers, SupervisorOf, testing::Values(1, 2));

}  // namespace
}  // namespace hearth::supervise
