// What a failing disk, a moved folder, a hangup or a clock that falls back may do to a run: nothing is lost,
// and what happened is said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "faults.h"
#include "io/run_log.h"
#include "main_stack.h"
#include "outcome.h"

namespace hearth {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kShortRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [64, 32], dropout: 0.1}
data: {kind: shapes, image_size: 16, count: 203, val_count: 40, flip: true}
train: {steps: 60, batch: 8, checkpoint_every: 10, eval_every: 20}
optimizer: {name: adamw, lr: 0.001}
threads: 1
)";

Faults open_fails(const std::string& path, int code) {
  return Faults({{"HEARTH_FAULT_PATH", path}, {"HEARTH_FAULT", std::to_string(code)}});
}

class Disk : public testing::Test {
 protected:
  void SetUp() override { write_file_atomically(recipe_, kShortRecipe); }

  Finished train() { return run_hearth(train_command(recipe_, run_), folder_.path() / "out"); }

  TemporaryFolder folder_;
  fs::path recipe_ = folder_.path() / "recipe.yaml";
  fs::path run_ = folder_.path() / "run";
};

TEST_F(Disk, WhatCannotBeReadIsNotTakenForNothing) {
  ASSERT_EQ(train().exit_code, 0);
  const auto before = contents_of(run_);
  for (const char* path : {"run/checkpoints", "step-000000060/memory.bin", "step-000000060/manifest.json",
                           "trainer_log.jsonl"}) {
    for (const int code : {EIO, EACCES}) {
      SCOPED_TRACE(path);
      const Faults faults = open_fails(path, code);
      const Finished last = train();
      EXPECT_EQ(last.exit_code, 2) << last.output;
      EXPECT_THAT(last.output, HasSubstr(std::strerror(code)));
      EXPECT_THAT(last.output, HasSubstr("cannot "));
    }
    EXPECT_EQ(contents_of(run_), before) << path;
  }
  EXPECT_EQ(train().exit_code, 0);
}

TEST_F(Disk, ANewRunDoesNotOverwriteWhatCannotBeListed) {
  ASSERT_EQ(train().exit_code, 0);
  fs::remove(run_ / "model.safetensors");
  const auto before = contents_of(run_);
  const Faults faults = open_fails("run/checkpoints", EIO);
  const Finished last =
      run_hearth({"train", recipe_.string(), "--out", run_.string()}, folder_.path() / "out");
  EXPECT_EQ(last.exit_code, 2) << last.output;
  EXPECT_EQ(contents_of(run_), before);
}

TEST_F(Disk, LinesOfALogThatAreNoneAreDropped) {
  ASSERT_EQ(train().exit_code, 0);
  const fs::path log = run_ / "trainer_log.jsonl";
  const std::string good = read_file(log);
  const std::string bad =
      "{\"current_steps\": \"x\"}\n{\"current_steps\": 1e300}\n[[[[\n\xff\n{\"current_steps\": -4}\n" +
      std::string(100'000, '[') + "\n{\"current_steps\": 3, \"loss\": \"low\"";
  write_file_atomically(log, bad + "\n" + good);
  const Finished last = train();
  EXPECT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(read_file(log), good);
}

/// A run without an end, which has a checkpoint when the constructor returns.
class EndlessRun {
 public:
  EndlessRun(const fs::path& recipe, const fs::path& run, const fs::path& output,
             const std::vector<std::string>& overrides)
      : child_(command(recipe, run, overrides), output) {
    while (!fs::exists(run / "checkpoints" / "step-000000010") && child_.running())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  Child& child() { return child_; }

 private:
  static std::vector<std::string> command(const fs::path& recipe, const fs::path& run,
                                          const std::vector<std::string>& overrides) {
    std::vector<std::string> words = train_command(recipe, run);
    words.insert(words.end(), {"train.steps=60000000", "train.keep_checkpoints=1000"});
    words.insert(words.end(), overrides.begin(), overrides.end());
    return words;
  }
  Child child_;
};

TEST_F(Disk, AFolderThatIsMovedEndsTheRun) {
  const fs::path moved = folder_.path() / "moved", output = folder_.path() / "out";
  for (const char* supervise : {"supervise=true", "supervise=false"}) {
    EndlessRun run(recipe_, run_, output, {supervise});
    fs::rename(run_, moved);
    EXPECT_EQ(run.child().wait(), 2);
    EXPECT_THAT(read_file(output), HasSubstr("was moved to " + moved.string()));
    EXPECT_FALSE(fs::exists(run_));
    EXPECT_TRUE(fs::exists(moved / "config.yaml"));
    EXPECT_TRUE(fs::exists(moved / "checkpoints" / "step-000000010"));
    fs::remove_all(moved);
  }
}

TEST_F(Disk, AFolderThatIsDeletedEndsTheRun) {
  const fs::path output = folder_.path() / "out";
  for (const char* supervise : {"supervise=true", "supervise=false"}) {
    EndlessRun run(recipe_, run_, output, {supervise});
    for (std::error_code again; fs::exists(run_);) fs::remove_all(run_, again);
    EXPECT_EQ(run.child().wait(), 2);
    EXPECT_THAT(read_file(output), HasSubstr("\nhearth: "));
    EXPECT_THAT(read_file(output), Not(HasSubstr("--resume")));
    EXPECT_FALSE(fs::exists(run_));
  }
}

TEST_F(Disk, FilesThatAreDeletedFromARunEndIt) {
  const fs::path output = folder_.path() / "out";
  for (const char* supervise : {"supervise=true", "supervise=false"}) {
    EndlessRun run(recipe_, run_, output, {supervise});
    // As rm -rf leaves it where the run puts files into a folder that is being emptied.
    for (const fs::path& file : list_folder(run_)) {
      std::error_code again;
      fs::remove_all(file, again);
    }
    EXPECT_EQ(run.child().wait(), 2);
    EXPECT_THAT(read_file(output), HasSubstr("\nhearth: "));
    fs::remove_all(run_);
  }
}

TEST_F(Disk, FoldersThatCannotBeFlushedAndSignalsWhileFlushingEndNoRun) {
  for (const int code : {EINVAL, EINTR}) {
    fs::remove_all(run_);
    const Faults faults(std::map<std::string, std::string>{{"HEARTH_FLUSH_FAULT", std::to_string(code)}});
    const Finished finished = train();
    EXPECT_EQ(finished.exit_code, 0) << std::strerror(code) << finished.output;
  }
  fs::remove_all(run_);
  const Faults faults(std::map<std::string, std::string>{{"HEARTH_FLUSH_FAULT", std::to_string(EIO)}});
  EXPECT_EQ(train().exit_code, 2);
}

TEST_F(Disk, AnotherBatchThatFailsLeavesTheRunAsItWas) {
  std::vector<std::string> stopped = train_command(recipe_, run_);
  stopped.emplace_back("train.steps=33");
  ASSERT_EQ(run_hearth(stopped, folder_.path() / "out").exit_code, 0);
  const std::string config = read_file(run_ / "config.yaml");
  {
    // The first step ends in an error, as where memory does not suffice.
    const Faults faults = open_fails("events.out.tfevents", EIO);
    EXPECT_EQ(run_hearth({"resume", run_.string(), "train.batch=5", "train.steps=60"}, folder_.path() / "out")
                  .exit_code,
              2);
  }
  EXPECT_EQ(read_file(run_ / "config.yaml"), config);
  const Finished finished =
      run_hearth({"resume", run_.string(), "train.batch=5", "train.steps=60"}, folder_.path() / "out");
  EXPECT_EQ(finished.exit_code, 0) << finished.output;
  EXPECT_THAT(read_file(run_ / "config.yaml"), HasSubstr("batch: 5\n"));
}

TEST_F(Disk, HangupsThatAreIgnoredEndNoRun) {
  const fs::path output = folder_.path() / "out";
  for (const char* supervise : {"supervise=true", "supervise=false"}) {
    const auto before = std::signal(SIGHUP, SIG_IGN);
    EndlessRun run(recipe_, run_, output, {supervise});
    std::signal(SIGHUP, before);
    kill(run.child().process(), SIGHUP);
    const size_t num_steps = io::read_curve(run_ / "trainer_log.jsonl", "loss").size();
    while (io::read_curve(run_ / "trainer_log.jsonl", "loss").size() < num_steps + 20 &&
           run.child().running())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(run.child().running()) << read_file(output);
    kill(run.child().process(), SIGTERM);
    EXPECT_EQ(run.child().wait(), 130);
    fs::remove_all(run_);
  }
}

TEST_F(Disk, CheckpointsMayBePrunedBesideTheirRun) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string want = sha256(run_ / "model.safetensors");
  fs::remove_all(run_);
  std::vector<std::string> command = train_command(recipe_, run_);
  command.insert(command.end(), {"train.checkpoint_every=1", "train.keep_checkpoints=2"});
  Child child(command, folder_.path() / "long.out");
  while (!fs::exists(run_ / "config.yaml") && child.running()) std::this_thread::yield();
  while (child.running()) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{"--prune", "1"}, {}}) {
      std::vector<std::string> words = {"checkpoints", run_.string()};
      words.insert(words.end(), more.begin(), more.end());
      const Finished beside = run_hearth(words, folder_.path() / "out");
      EXPECT_EQ(beside.exit_code, 0) << beside.output;
    }
  }
  EXPECT_EQ(child.wait(), 0) << read_file(folder_.path() / "long.out");
  EXPECT_EQ(sha256(run_ / "model.safetensors"), want);
}

TEST_F(Disk, AClockThatFallsBackChangesNoTimesOfARun) {
  const Faults faults(std::map<std::string, std::string>{{"HEARTH_CLOCK_STEP", "121920"}});
  const Finished finished = train();
  ASSERT_EQ(finished.exit_code, 0) << finished.output;
  const std::vector<io::CurvePoint> times = io::read_curve(run_ / "trainer_log.jsonl", "elapsed_time");
  ASSERT_EQ(times.size(), 60U);
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_GE(times[i].value, i == 0 ? 0 : times[i - 1].value);
    EXPECT_LT(times[i].value, 100'000);
  }
  EXPECT_THAT(finished.output, Not(HasSubstr(" -")));
  // The clock did fall back: it is in the name of the file with events.
  constexpr std::string_view kEvents = "events.out.tfevents.";
  for (const fs::path& file : list_folder(run_)) {
    const std::string name = file.filename().string();
    if (!name.starts_with(kEvents)) continue;
    EXPECT_LT(std::stoll(name.substr(kEvents.size())), std::time(nullptr) - 100'000);
  }
}

TEST_F(Disk, MemoryThatIsScarceIsSaidAndLosesNothing) {
  ASSERT_EQ(train().exit_code, 0);
  const std::string want = sha256(run_ / "model.safetensors");
  const fs::path output = folder_.path() / "out";
  for (const char* supervise : {"supervise=true", "supervise=false"}) {
    fs::remove_all(run_);
    int code = -1, num_refusals = 0;
    // Small steps, because any allocation may be the one that fails.
    for (int64_t limit = int64_t{32} << 20; code != 0; limit += 1 << 20) {
      // Libraries that cannot be loaded or initialized end every program before its main().
      const int loaded = Child({"--version"}, output, -1, limit).wait();
      if (loaded != 0 && loaded != 2) continue;
      std::vector<std::string> command = train_command(recipe_, run_);
      command.emplace_back(supervise);
      code = Child(command, output, -1, limit).wait();
      const std::string text = read_file(output);
      ASSERT_TRUE(code == 0 || code == 2) << limit << ": " << code << "\n" << text;
      if (code == 0) continue;
      ++num_refusals;
      EXPECT_THAT(text, ContainsRegex("hearth: .*(memory|a thread|resource)"));
    }
    EXPECT_GE(num_refusals, 1);
    EXPECT_EQ(sha256(run_ / "model.safetensors"), want);
  }
}

TEST_F(Disk, ARunHasItsStackFromTheStart) {
  EndlessRun run(recipe_, run_, folder_.path() / "out", {"supervise=false"});
  EXPECT_GE(main_stack_bytes(std::to_string(run.child().process())), 1 << 20);
}

TEST_F(Disk, AnotherOptimizerOrOtherDataIsRefused) {
  ASSERT_EQ(train().exit_code, 0);
  const auto before = contents_of(run_);
  const auto resume = [&](const std::string& change) {
    std::vector<std::string> command = train_command(recipe_, run_);
    command.insert(command.end(), {"train.steps=80", change});
    return run_hearth(command, folder_.path() / "out");
  };
  const Finished sgd = resume("optimizer.name=sgd"), lion = resume("optimizer.name=lion");
  for (const Finished& finished : {sgd, lion}) {
    EXPECT_EQ(finished.exit_code, 2);
    EXPECT_THAT(finished.output, HasSubstr("optimizer.name cannot be changed"));
  }
  const Finished shrunk = resume("data.count=150");
  EXPECT_EQ(shrunk.exit_code, 2);
  EXPECT_THAT(shrunk.output, HasSubstr("data.count cannot be changed"));
  EXPECT_EQ(contents_of(run_), before);
  EXPECT_EQ(resume("optimizer.lr=0.002").exit_code, 0);
}

}  // namespace
}  // namespace hearth
