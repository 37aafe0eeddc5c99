#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
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

/// What the kernel says of a process after a word like "PPid:"; empty where there is none.
std::string status_of(pid_t process, const std::string& key) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;)
    if (word == key && status >> word) return word;
  return "";
}
bool lives(pid_t process) {
  const std::string state = status_of(process, "State:");
  return !state.empty() && state != "Z" && state != "X";
}

/// The processes that `child` has started and that live.
std::vector<pid_t> workers_of(const Child& child) {
  std::vector<pid_t> workers;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process > 0 && status_of(process, "PPid:") == std::to_string(child.process()) && lives(process))
      workers.push_back(process);
  }
  return workers;
}

class SlowSupervisor : public testing::Test {
 protected:
  SlowSupervisor() {
    write_file_atomically(recipe_, kRecipe);
    fs::create_directory(temporary_);
    setenv("TMPDIR", temporary_.c_str(), 1);
    const Finished whole = run_hearth(train_into(whole_), at("whole.out"));
    EXPECT_EQ(whole.exit_code, 0) << whole.output;
    want_ = outcome_of(whole_);
  }
  ~SlowSupervisor() override { unsetenv("TMPDIR"); }
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  /// In shards that one, two or four devices can sum; checkpoints are in memory as often as on the disk.
  std::vector<std::string> train_into(const fs::path& run, const std::string& more = "seed=0",
                                      const std::string& devices = "devices=1") const {
    return {"train",
            recipe_.string(),
            "--out",
            run.string(),
            devices,
            "train.batch=4",
            "train.accumulate=4",
            "train.shards=4",
            "train.memory_checkpoint_every=0.01",
            more};
  }
  /// To one of its workers.
  void send(Child& child, int signal, uint64_t which = 0) {
    std::vector<pid_t> workers;
    ASSERT_TRUE(wait_until(child, 20s, [&] { return !(workers = workers_of(child)).empty(); }));
    kill(workers[which % workers.size()], signal);
  }
  /// The supervisor too: its workers end, and the run continues when it is told to.
  void kill_supervisor(std::optional<Child>& child, const std::string& devices) {
    const std::vector<pid_t> workers = workers_of(*child);
    ASSERT_TRUE(child->kill_now());
    const auto until = Clock::now() + 60s;
    while (std::ranges::any_of(workers, lives) && Clock::now() < until) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(std::ranges::none_of(workers, lives));
    child.emplace(train_into(run_, "--resume", devices), output_);
  }
  void expect_nothing_left() const {
    for (const auto& entry : fs::directory_iterator("/proc")) {
      std::ifstream file(entry.path() / "cmdline");
      const std::string line(std::istreambuf_iterator<char>(file), {});
      EXPECT_EQ(line.find(run_.string()), line.npos) << entry.path() << " continues";
    }
    for (const auto& entry : fs::recursive_directory_iterator(run_))
      EXPECT_FALSE(entry.path().filename().string().starts_with(".tmp")) << entry.path();
    EXPECT_TRUE(fs::is_empty(temporary_));
  }
  void expect_the_same_run(Child& child) {
    EXPECT_EQ(child.wait(), 0) << read_file(output_);
    expect_same(outcome_of(run_), want_);
  }

  const TemporaryFolder folder_;
  const fs::path recipe_ = at("recipe.yaml"), whole_ = at("whole"), run_ = at("run"), output_ = at("out"),
                 temporary_ = at("temporary");
  Outcome want_;
};

/// No name in /dev/shm is theirs.
void expect_nameless_memory(const std::vector<pid_t>& processes) {
  for (const pid_t process : processes) {
    std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
    for (std::string line; std::getline(maps, line);) EXPECT_EQ(line.find("/dev/shm/"), line.npos) << line;
  }
}

TEST_F(SlowSupervisor, KilledProcessesChangeNothing) {
  const char* const given = std::getenv("HEARTH_KILLS");
  const char* const given_seed = std::getenv("HEARTH_SEED");
  const uint64_t seed = given_seed != nullptr ? std::stoull(given_seed) : std::random_device()();
  std::mt19937_64 random(seed);
  int64_t left = given != nullptr ? std::stoll(given) : 9;
  const int64_t of_a_run = std::clamp<int64_t>(left / 3, 1, 40);
  std::cout << left << " kills (HEARTH_KILLS), HEARTH_SEED=" << seed << "\n";
  for (int num_devices = 1; left > 0; num_devices = num_devices == 4 ? 1 : 2 * num_devices) {
    fs::remove_all(run_);
    const std::string devices = fmt::format("devices={}", num_devices);
    std::optional<Child> child;
    child.emplace(train_into(run_, "seed=0", devices), output_);
    const int64_t num_kills = std::min(left, of_a_run);
    int64_t num_supervisors = 0;
    for (int64_t i = 0, newest = 0; i < num_kills; ++i) {
      // Without later steps between, a failure would be one that comes back.
      const int64_t most = std::max<int64_t>(3, (kSteps - newest) / (2 * (num_kills - i)));
      newest += std::uniform_int_distribution<int64_t>(3, most)(random);
      ASSERT_TRUE(wait_until(*child, 60s, [&] { return last_step(run_) >= newest; })) << read_file(output_);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 2000));
      expect_nameless_memory(workers_of(*child));
      if (const uint64_t which = random() % static_cast<uint64_t>(num_devices + 1); which == 0) {
        ++num_supervisors;
        kill_supervisor(child, devices);
      } else {
        send(*child, SIGKILL, which);
      }
      newest = std::max(newest, last_step(run_));
    }
    expect_the_same_run(*child);
    expect_nothing_left();
    std::cout << num_kills << " kills on " << devices << ", " << num_supervisors << " of supervisors: sha256 "
              << sha256(run_ / "model.safetensors") << "\n";
    if (HasFailure()) break;
    left -= num_kills;
  }
}

/// The step that a run was resumed at from memory; -1: it was not.
int64_t step_from_memory(const fs::path& output) {
  constexpr std::string_view kWords = "resumed step ";
  const std::string text = read_file(output);
  const size_t at = text.find(kWords);
  if (at == text.npos || text.find(" from memory", at) == text.npos) return -1;
  return std::stoll(text.substr(at + kWords.size()));
}

/// Copies take a fiftieth of the time at most, so that on a loaded machine the newest is more than 100 steps
/// old.
constexpr int64_t kLateStep = 450;

TEST_F(SlowSupervisor, GoesOnFromMemoryWithoutACheckpointOnTheDisk) {
  for (const char* devices : {"devices=1", "devices=2"}) {
    fs::remove_all(run_);
    Child child(train_into(run_, "train.checkpoint_every=1000000", devices), output_);
    ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= kLateStep; }));
    send(child, SIGKILL, 1);
    EXPECT_EQ(child.wait(), 0) << read_file(output_);
    EXPECT_GE(step_from_memory(output_), 200) << read_file(output_);
    expect_same(outcome_of(run_), want_);
    expect_nothing_left();
  }
}

TEST_F(SlowSupervisor, WhatEachWorkerHasAloneIsInMemoryToo) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"parallel=zero1", "train.ema=0"},
                                             {"parallel=sharded", "train.ema=0"},
                                             {"parallel=pipeline", "train.shards=1"},
                                             {"exchange.local_steps=4", "train.ema=0"}}) {
    const auto command = [&](const fs::path& run, const char* every) {
      std::vector<std::string> words = train_into(run, every, "devices=2");
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    for (const fs::path& run : {run_, whole_}) fs::remove_all(run);
    const Finished whole = run_hearth(command(whole_, "seed=0"), at("whole.out"));
    ASSERT_EQ(whole.exit_code, 0) << whole.output;
    Child child(command(run_, "train.checkpoint_every=1000000"), output_);
    ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= kLateStep; }));
    send(child, SIGKILL, 1);
    EXPECT_EQ(child.wait(), 0) << read_file(output_);
    EXPECT_GE(step_from_memory(output_), 200) << read_file(output_);
    expect_same(outcome_of(run_), outcome_of(whole_));
  }
}

TEST_F(SlowSupervisor, ARunGoesOnElsewhere) {
  Child first(train_into(run_), output_);
  ASSERT_TRUE(wait_until(first, 60s, [&] { return last_step(run_) >= 300; }));
  ASSERT_TRUE(first.kill_now());
  const fs::path moved = at("elsewhere/moved");
  fs::create_directory(moved.parent_path());
  fs::rename(run_, moved);
  fs::remove(recipe_);
  Child second({"train", "--resume", "--out", moved.string()}, output_);
  EXPECT_EQ(second.wait(), 0) << read_file(output_);
  expect_same(outcome_of(moved), want_);
}

TEST_F(SlowSupervisor, AStoppedWorkerIsNamedAndReplaced) {
  Child child(train_into(run_), output_);
  ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= 100; }));
  send(child, SIGSTOP);
  const int64_t step = last_step(run_);
  EXPECT_TRUE(wait_until(child, 60s, [&] {
    return read_file(output_).find("the worker was stopped by SIGSTOP at step") != std::string::npos;
  }));
  EXPECT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) > step; }));
  expect_the_same_run(child);
}

TEST_F(SlowSupervisor, AReaderMayTakeItsTime) {
  ASSERT_EQ(mkfifo(output_.c_str(), 0600), 0);
  const int reader = open(output_.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GT(fcntl(reader, F_SETPIPE_SZ, 4096), 0);
  Child child(train_into(run_, "train.log_every=1", "devices=2"), output_);
  ASSERT_TRUE(wait_until(child, 60s, [&] { return last_step(run_) >= 10; }));
  // Longer than a worker may be silent otherwise.
  std::this_thread::sleep_for(15s);
  EXPECT_LT(last_step(run_), kSteps);
  fcntl(reader, F_SETFL, 0);
  std::string text, piece(4096, 0);
  for (ssize_t count = 0; (count = read(reader, piece.data(), piece.size())) > 0;)
    text.append(piece, 0, static_cast<size_t>(count));
  close(reader);
  EXPECT_EQ(text.find("hearth: "), text.npos) << text;
  EXPECT_EQ(child.wait(), 0);
  expect_same(outcome_of(run_), want_);
}

TEST_F(SlowSupervisor, ItsDeathIsTheWorkersAndLeavesTheRunFree) {
  Child first(train_into(run_), output_);
  ASSERT_TRUE(wait_until(first, 60s, [&] { return last_step(run_) >= 100; }));
  const std::vector<pid_t> workers = workers_of(first);
  ASSERT_FALSE(workers.empty());
  ASSERT_TRUE(first.kill_now());
  Child second(train_into(run_, "--resume"), output_);
  EXPECT_TRUE(wait_until(second, 60s, [&] { return std::ranges::none_of(workers, lives); }));
  expect_the_same_run(second);
}

TEST_F(SlowSupervisor, AnInterruptedRunIsStillOne) {
  Child first(train_into(run_), output_);
  ASSERT_TRUE(wait_until(first, 60s, [&] { return last_step(run_) >= 100; }));
  kill(first.process(), SIGINT);
  EXPECT_EQ(first.wait(), 130);
  EXPECT_NE(read_file(output_).find("stopped at step "), std::string::npos) << read_file(output_);
  Child second(train_into(run_, "--resume"), output_);
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
      fmt::format("hearth: {}: process {} on ", run.string(), workers_of(child).at(0));
  EXPECT_EQ(second.output.substr(0, expected.size()), expected);
  EXPECT_TRUE(child.running());
}

}  // namespace
}  // namespace hearth
