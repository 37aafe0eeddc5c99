#include <gtest/gtest.h>
#include <sys/mount.h>

#include <algorithm>
#include <cstring>
#include <iostream>

#include "base/error.h"
#include "io/checkpoint.h"
#include "io/event_file.h"
#include "io/run_log.h"
#include "process.h"

namespace hearth {
namespace {

/// A disk of `num_bytes`. Mounting one needs root.
class SmallDisk {
 public:
  SmallDisk(fs::path path, int64_t num_bytes) : path_(std::move(path)) {
    fs::create_directories(path_);
    mounted_ = mount("hearth", path_.c_str(), "tmpfs", 0, size_option(num_bytes).c_str()) == 0;
    if (!mounted_) why_not_ = std::string("SKIPPED: no small disk could be mounted: ") + std::strerror(errno);
  }
  ~SmallDisk() {
    if (mounted_) umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }
  const fs::path& path() const { return path_; }
  void grow(int64_t num_bytes) {
    ASSERT_EQ(mount("hearth", path_.c_str(), "tmpfs", MS_REMOUNT, size_option(num_bytes).c_str()), 0);
  }
  void fill() {
    FileWriter writer(path_ / "filler");
    const std::string block(4096, 'x');
    try {
      while (true) writer.write(block);
    } catch (const UserError&) {
    }
  }

 private:
  static std::string size_option(int64_t num_bytes) { return "size=" + std::to_string(num_bytes); }
  fs::path path_;
  bool mounted_ = false;
  std::string why_not_;
};

constexpr const char* kRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [64, 32], dropout: 0.1}
data: {kind: shapes, image_size: 16, count: 203, val_count: 40, flip: true}
train: {steps: 200, batch: 8, accumulate: 2, checkpoint_every: 20, ema: 0.9, eval_every: 50}
optimizer: {name: adamw, lr: 0.001}
threads: 2
)";

/// What the program said on its way out: one line on standard error, "hearth: ...".
std::string last_words(const std::string& output) {
  const size_t at = output.find("hearth: ");
  if (at == std::string::npos || (at > 0 && output[at - 1] != '\n')) return "";
  const std::string rest = output.substr(at);
  return std::count(rest.begin(), rest.end(), '\n') == 1 ? rest : "";
}

TEST(SlowFullDisk, ARunEndsCleanlyAndGoesOnOnceThereIsSpace) {
  const TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml";
  write_file_atomically(recipe, kRecipe);
  const fs::path whole = folder.path() / "whole";
  ASSERT_EQ(run_hearth(train_command(recipe, whole), folder.path() / "whole.out").exit_code, 0);
  // Room for two checkpoints of 0.8 MB, not for the third that is written before the first is deleted.
  SmallDisk disk(folder.path() / "disk", 2200 << 10);
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  const fs::path run = disk.path() / "run";
  const Finished full = run_hearth(train_command(recipe, run), folder.path() / "full.out");
  EXPECT_EQ(full.exit_code, 2) << full.output;
  const std::string words = last_words(full.output);
  std::cout << words;
  EXPECT_NE(words.find("No space left on device"), std::string::npos) << full.output;
  EXPECT_NE(words.find(run.string()), std::string::npos) << full.output;
  const auto found = io::find_newest_checkpoint(run / "checkpoints", nullptr);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 40);
  EXPECT_TRUE(found->refused.empty());

  disk.grow(64 << 20);
  const Finished rest = run_hearth(train_command(recipe, run), folder.path() / "rest.out");
  ASSERT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_NE(rest.output.find("(step 40)"), std::string::npos) << rest.output;
  EXPECT_TRUE(read_file(run / "model.safetensors") == read_file(whole / "model.safetensors"));
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with(".tmp") || name.find(".hearth-") != name.npos) << name;
  }
}

/// The sentence of the UserError that `action` ends with.
template <typename Action>
std::string sentence(const Action& action) {
  try {
    for (int i = 0; i < 100000; ++i) action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(FullDisk, LogAndEventsNameTheirFile) {
  const TemporaryFolder folder;
  SmallDisk disk(folder.path() / "disk", 256 << 10);
  if (!disk.mounted()) GTEST_SKIP() << disk.why_not();
  io::RunLog log(disk.path() / "trainer_log.jsonl", -1);
  io::EventFile events(disk.path());
  log.step(1, 10, 0.5, 0.1, 1, 1);
  disk.fill();
  const std::string of_log = sentence([&] { log.step(2, 10, 0.5, 0.1, 1, 1); });
  EXPECT_NE(of_log.find("trainer_log.jsonl: No space left on device"), std::string::npos) << of_log;
  const std::string of_events = sentence([&] { events.add_scalar(1, "train/loss", 0.5F); });
  EXPECT_NE(of_events.find("events.out.tfevents"), std::string::npos) << of_events;
  EXPECT_NE(of_events.find("No space left on device"), std::string::npos) << of_events;
  EXPECT_NE(sentence([&] { write_file_atomically(disk.path() / "config.yaml", std::string(9000, 'y')); }),
            "");
  for (const auto& entry : fs::directory_iterator(disk.path()))
    EXPECT_EQ(entry.path().string().find("config.yaml"), std::string::npos) << entry.path();
}

TEST(SlowFullDisk, AReportThatCannotBeWrittenIsOneSentence) {
  const TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml";
  write_file_atomically(recipe, R"(
model: {name: mlp, num_classes: 10, hidden: [4]}
data: {kind: shapes, image_size: 8, count: 64, val_count: 40}
train: {steps: 8, batch: 8}
threads: 2
)");
  const fs::path run = folder.path() / "run";
  // Weights and log stay below this size, the report with its images does not.
  const Finished last = run_hearth(train_command(recipe, run), folder.path() / "out", 20 << 10);
  EXPECT_EQ(last.exit_code, 2) << last.output;
  EXPECT_NE(last_words(last.output).find("report.html"), std::string::npos) << last.output;
  EXPECT_TRUE(fs::exists(run / "model.safetensors"));
  EXPECT_FALSE(fs::exists(run / "report.html"));
  EXPECT_EQ(run_hearth(train_command(recipe, run), folder.path() / "again").exit_code, 0);
  EXPECT_TRUE(fs::exists(run / "report.html"));
}

}  // namespace
}  // namespace hearth
