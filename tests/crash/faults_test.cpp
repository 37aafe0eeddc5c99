// What a failing disk, a moved folder and a power cut may do to a run: nothing is lost, and what happened is
// said.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "process.h"

namespace hearth {
namespace {

using testing::HasSubstr;

constexpr const char* kRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [64, 32], dropout: 0.1}
data: {kind: shapes, image_size: 16, count: 203, val_count: 40, flip: true}
train: {steps: 60, batch: 8, checkpoint_every: 10, eval_every: 20}
optimizer: {name: adamw, lr: 0.001}
threads: 1
)";

/// The children of this process meet faults.cpp while it lives.
class Faults {
 public:
  explicit Faults(const std::map<std::string, std::string>& variables) : variables_(variables) {
    setenv("LD_PRELOAD", HEARTH_FAULTS, 1);
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Faults() {
    unsetenv("LD_PRELOAD");
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

 private:
  std::map<std::string, std::string> variables_;
};

Faults open_fails(const std::string& path, int code) {
  return Faults({{"HEARTH_FAULT_PATH", path}, {"HEARTH_FAULT", std::to_string(code)}});
}

/// Every file of a folder with its contents, but for the lock, which names its last owner.
std::map<std::string, std::string> contents_of(const fs::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != ".lock")
      contents[entry.path().string()] = read_file(entry.path());
  }
  return contents;
}

class Disk : public testing::Test {
 protected:
  void SetUp() override { write_file_atomically(recipe_, kRecipe); }

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

TEST_F(Disk, AFolderThatIsMovedEndsTheRun) {
  std::string longer = kRecipe;
  longer.replace(longer.find("steps: 60"), 9, "steps: 60000000");
  const fs::path long_recipe = folder_.path() / "long.yaml";
  write_file_atomically(long_recipe, longer);
  Child child(train_command(long_recipe, run_), folder_.path() / "long.out");
  while (!fs::exists(run_ / "checkpoints" / "step-000000010") && child.running())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const fs::path moved = folder_.path() / "moved";
  fs::rename(run_, moved);
  EXPECT_EQ(child.wait(), 2);
  EXPECT_THAT(read_file(folder_.path() / "long.out"), HasSubstr("moved, deleted or replaced"));
  EXPECT_FALSE(fs::exists(run_));
  EXPECT_TRUE(fs::exists(moved / "config.yaml"));
  EXPECT_TRUE(fs::exists(moved / "checkpoints" / "step-000000010"));
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
    EXPECT_THAT(finished.output, HasSubstr("expected optimizer.name=adamw"));
  }
  const Finished shrunk = resume("data.count=150");
  EXPECT_EQ(shrunk.exit_code, 2);
  EXPECT_THAT(shrunk.output, HasSubstr("203 rows an epoch, got 150 rows"));
  EXPECT_EQ(contents_of(run_), before);
  EXPECT_EQ(resume("optimizer.lr=0.002").exit_code, 0);
}

TEST_F(Disk, APowerCutLeavesTheLogOfEveryCheckpoint) {
  const fs::path trace = folder_.path() / "trace";
  {
    const Faults faults({{"HEARTH_TRACE", trace.string()}});
    ASSERT_EQ(train().exit_code, 0);
  }
  std::istringstream lines(read_file(trace));
  int num_checkpoints = 0, num_log_flushes = 0, num_entries_flushed = 0;
  bool manifest_flushed = false, run_is_known = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "fsync " + folder_.path().string()) run_is_known = true;
    if (line == "fsync " + (run_ / "checkpoints").string()) num_entries_flushed = num_checkpoints;
    if (line.starts_with("fsync ") && line.ends_with("trainer_log.jsonl")) ++num_log_flushes;
    if (line.starts_with("fsync ") && line.ends_with("manifest.json")) manifest_flushed = true;
    if (!line.starts_with("rename ") || line.find(".tmp-step-") == std::string::npos) continue;
    EXPECT_TRUE(run_is_known) << "the run folder may be gone: " << line;
    EXPECT_EQ(num_entries_flushed, num_checkpoints) << "the checkpoint before may be gone: " << line;
    EXPECT_GT(num_log_flushes, num_checkpoints++) << line;
    EXPECT_TRUE(std::exchange(manifest_flushed, false)) << line;
  }
  EXPECT_EQ(num_entries_flushed, 6);
  EXPECT_EQ(num_checkpoints, 6);
}

}  // namespace
}  // namespace hearth
