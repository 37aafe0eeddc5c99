#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <thread>

#include "outcome.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Until something is so; false where it is not in time or the program ends first.
bool wait_until(Child& child, std::chrono::seconds patience, const std::function<bool()>& is_so) {
  const auto until = Clock::now() + patience;
  while (!is_so()) {
    if (Clock::now() > until || !child.running()) return is_so();
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

int64_t last_step(const fs::path& run) {
  const fs::path log = run / "trainer_log.jsonl";
  if (!fs::exists(log)) return 0;
  const auto curve = io::read_curve(log, "loss");
  return curve.empty() ? 0 : curve.back().step;
}

pid_t parent_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;) {
    pid_t parent = 0;
    if (word == "PPid:" && status >> parent) return parent;
  }
  return -1;
}

/// The process that trains in the run folder for `child`, by the lock's own words; -1: none does.
pid_t worker_of(const Child& child, const fs::path& run) {
  std::ifstream lock(run / ".lock");
  std::string word;
  pid_t worker = -1;
  if (!(lock >> word >> worker) || parent_of(worker) != child.process()) return -1;
  return worker;
}

class SlowSupervisor : public testing::Test {
 protected:
  SlowSupervisor() {
    write_file_atomically(recipe_, kRecipe);
    EXPECT_EQ(run_hearth(train_command(recipe_, whole_), at("whole.out")).exit_code, 0);
    want_ = outcome_of(whole_);
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void send(Child& child, int signal) {
    pid_t worker = -1;
    ASSERT_TRUE(wait_until(child, 20s, [&] { return (worker = worker_of(child, run_)) > 0; }));
    kill(worker, signal);
  }
  void expect_the_same_run(Child& child) {
    EXPECT_EQ(child.wait(), 0) << read_file(output_);
    expect_same(outcome_of(run_), want_);
  }

  const TemporaryFolder folder_;
  const fs::path recipe_ = at("recipe.yaml"), whole_ = at("whole"), run_ = at("run"), output_ = at("out");
  const std::vector<std::string> command_ = {"train", recipe_.string(), "--out", run_.string()};
  Outcome want_;
};

TEST_F(SlowSupervisor, KilledWorkersChangeNothing) {
  const char* const given = std::getenv("HEARTH_KILLS");
  const int64_t num_kills = given != nullptr ? std::stoll(given) : 5;
  const uint64_t seed = std::random_device()();
  std::cout << num_kills << " kills (HEARTH_KILLS), seed " << seed << "\n";
  std::mt19937_64 random(seed);
  Child child(command_, output_);
  for (int64_t i = 0, newest = 0; i < num_kills; ++i) {
    // Without a later step between, the run would be given up.
    const int64_t most = std::max<int64_t>(1, (kSteps - newest) / (num_kills - i + 1));
    newest += std::uniform_int_distribution<int64_t>(1, most)(random);
    ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= newest; })) << read_file(output_);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    send(child, SIGKILL);
    newest = std::max(newest, last_step(run_));
  }
  expect_the_same_run(child);
  const std::string output = read_file(output_);
  std::cout << "sha256 " << sha256(run_ / "model.safetensors") << "\n";
  int64_t num_named = 0;
  for (size_t found = 0; (found = output.find("was killed by SIGKILL at step", found)) != std::string::npos;
       ++found)
    ++num_named;
  EXPECT_EQ(num_named, num_kills) << output;
}

TEST_F(SlowSupervisor, AStoppedWorkerIsNamedAndReplaced) {
  Child child(command_, output_);
  ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= 100; }));
  send(child, SIGSTOP);
  const int64_t step = last_step(run_);
  EXPECT_TRUE(wait_until(child, 5s, [&] {
    return read_file(output_).find("the worker was stopped by SIGSTOP at step") != std::string::npos;
  }));
  EXPECT_TRUE(wait_until(child, 5s, [&] { return last_step(run_) > step; }));
  expect_the_same_run(child);
}

TEST_F(SlowSupervisor, ItsDeathIsTheWorkersAndLeavesTheRunFree) {
  Child first(command_, output_);
  ASSERT_TRUE(wait_until(first, 60s, [&] { return last_step(run_) >= 100; }));
  const pid_t worker = worker_of(first, run_);
  ASSERT_TRUE(first.kill_now());
  Child second(train_command(recipe_, run_), output_);
  ASSERT_TRUE(wait_until(second, 20s, [&] { return worker_of(second, run_) > 0; })) << read_file(output_);
  EXPECT_NE(kill(worker, 0), 0) << "it trains beside the next one";
  expect_the_same_run(second);
}

TEST_F(SlowSupervisor, AnInterruptedRunIsStillOne) {
  Child first(command_, output_);
  ASSERT_TRUE(wait_until(first, 60s, [&] { return last_step(run_) >= 100; }));
  kill(first.process(), SIGINT);
  EXPECT_EQ(first.wait(), 130);
  EXPECT_NE(read_file(output_).find("stopped at step "), std::string::npos) << read_file(output_);
  Child second(train_command(recipe_, run_), output_);
  expect_the_same_run(second);
}

TEST(Supervisor, KeepsTheRunFolderForItsRun) {
  const TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml", run = folder.path() / "run";
  write_file_atomically(recipe, kRecipe);
  const std::vector<std::string> command = {
      "train",      recipe.string(),       "--out",
      run.string(), "train.steps=1000000", "train.checkpoint_every=1000000"};
  Child child(command, folder.path() / "out");
  ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run) > 0; }));
  const Finished second = run_hearth(command, folder.path() / "second");
  EXPECT_EQ(second.exit_code, 2);
  const std::string expected =
      fmt::format("hearth: expected a run folder that nobody trains in, got {}, which process {} on ",
                  run.string(), worker_of(child, run));
  EXPECT_EQ(second.output.substr(0, expected.size()), expected);
  EXPECT_TRUE(child.running());
}

}  // namespace
}  // namespace hearth
