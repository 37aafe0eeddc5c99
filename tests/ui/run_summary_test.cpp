#include "ui/run_summary.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/run_files.h"
#include "io/run_lock.h"
#include "temporary_folder.h"
#include "ui/recipe_keys.h"
#include "ui/samples.h"

namespace hearth::ui {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

std::string step_line(int step, int total) {
  return fmt::format("{{\"current_steps\":{},\"total_steps\":{},\"loss\":{},\"elapsed_time\":{}}}\n", step,
                     total, 1.0 / step, 2 * step);
}

fs::path make_run(const fs::path& folder, const std::string& log) {
  fs::create_directories(folder);
  write_file_atomically(folder / kRunRecipe,
                        "model:\n  name: smallcnn\ntrain:\n  batch: 64\n  sizes: [1, 2]\n");
  if (!log.empty()) write_file_atomically(folder / kLogFile, log);
  return folder;
}

RunSummary summary_of(const fs::path& folder) {
  RunReader reader(folder, "name");
  reader.refresh();
  return reader.summary();
}

TEST(RunSummary, OfACrashedRun) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder.path() / "a", step_line(1, 9) + step_line(2, 9));
  fs::create_directories(run / kCheckpoints / "step-000000002");
  fs::create_directories(run / kCheckpoints / ".tmp-step-000000009");
  const RunSummary summary = summary_of(run);
  EXPECT_EQ(summary.state, RunState::crashed);
  EXPECT_EQ(summary.step, 2);
  EXPECT_EQ(summary.total_steps, 9);
  EXPECT_EQ(summary.seconds_per_step, 2);
  EXPECT_EQ(summary.checkpoint_step, 2);
  EXPECT_EQ(summary.model, "smallcnn");
  EXPECT_FALSE(summary.has_report);
}

TEST(RunSummary, OfARunThatHoldsItsLock) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder.path() / "a", step_line(2, 9));
  RunReader reader(run, "a");
  {
    const io::RunLock lock(run, 0);
    reader.refresh();
    EXPECT_EQ(reader.summary().state, RunState::running);
    EXPECT_THAT(reader.summary().owner, testing::StartsWith(fmt::format("process {} on", getpid())));
  }
  reader.refresh();  // the process lives, but no longer has the lock
  EXPECT_EQ(reader.summary().state, RunState::crashed);
  EXPECT_EQ(reader.summary().owner, "");
}

TEST(RunSummary, OfALockOnAnotherMachineFollowsTheLog) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder.path() / "a", step_line(2, 9));
  write_file_atomically(run / ".lock", "process 1 on another.machine\n");
  EXPECT_EQ(summary_of(run).state, RunState::running);
  fs::last_write_time(run / kLogFile, fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(summary_of(run).state, RunState::crashed);
}

TEST(RunSummary, OfARunThatEnded) {
  const TemporaryFolder folder;
  const fs::path done = make_run(folder.path() / "done", step_line(9, 9));
  EXPECT_EQ(summary_of(done).state, RunState::done);
  const fs::path stopped = make_run(folder.path() / "stopped", step_line(3, 9));
  write_file_atomically(stopped / "report.html", "<html>");
  EXPECT_EQ(summary_of(stopped).state, RunState::stopped);
  EXPECT_TRUE(summary_of(stopped).has_report);
}

TEST(RunSummary, HasTheBestEvaluation) {
  const TemporaryFolder folder;
  const auto line = [](int step, double loss, const char* more) {
    return fmt::format("{{\"current_steps\":{},\"eval_loss\":{}{}}}\n", step, loss, more);
  };
  std::string log = line(1, 3, "") + line(2, 1, "") + line(3, 2, "") + line(4, 0.5, "") +
                    "{\"current_steps\":5,\"eval_loss\":null}\n";
  const fs::path run = make_run(folder.path() / "a", log);
  RunReader reader(run, "a");
  reader.refresh();
  EXPECT_EQ(reader.summary().best.name, "eval_loss");
  EXPECT_EQ(reader.summary().best.value, 0.5);
  EXPECT_EQ(reader.summary().best.step, 4);
  log = line(1, 3, ",\"eval_accuracy\":0.5") + line(2, 1, ",\"eval_accuracy\":0.9") +
        line(3, 0.1, ",\"eval_accuracy\":0.8");
  const fs::path other = make_run(folder.path() / "b", log);
  EXPECT_EQ(summary_of(other).best.name, "eval_accuracy");
  EXPECT_EQ(summary_of(other).best.value, 0.9);
  EXPECT_EQ(summary_of(other).best.step, 2);
}

TEST(RunSummary, OfDamagedFilesIsEmpty) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder.path() / "a", std::string("\0\xff\xfe[[[[{\"loss\"\n", 15));
  write_file_atomically(run / kRunRecipe, "model: [&a *a\n\xff");
  write_file_atomically(run / ".lock", std::string(5000, '\xff'));
  const RunSummary summary = summary_of(run);
  EXPECT_EQ(summary.state, RunState::crashed);
  EXPECT_EQ(summary.total_steps, 0);
  fs::create_directory(folder.path() / "b");
  fs::create_directory(folder.path() / "b" / kLogFile);
  fs::create_symlink("/dev/zero", folder.path() / "b" / kRunRecipe);
  EXPECT_EQ(summary_of(folder.path() / "b").state, RunState::crashed);
  EXPECT_EQ(summary_of(folder.path() / "absent").state, RunState::crashed);
}

TEST(RunSummary, JsonHoldsTextOfAnyBytes) {
  RunSummary summary;
  summary.name = "</script>\xff\"\n";
  summary.best.value = std::nan("");
  const auto json = nlohmann::json::parse(summary.json());
  EXPECT_EQ(json["state"], "crashed");
  EXPECT_TRUE(json["best"].is_null());
}

TEST(FindRuns, LooksTwoLevelsDeep) {
  const TemporaryFolder folder;
  make_run(folder.path() / "a", step_line(1, 2));
  make_run(folder.path() / "group" / "b", "");
  make_run(folder.path() / "x" / "y" / "z", "");
  make_run(folder.path() / ".hidden", "");
  make_run(folder.path() / "a" / "inner", "");
  EXPECT_THAT(find_runs(folder.path()), ElementsAre(folder.path() / "a", folder.path() / "group/b"));
  EXPECT_THAT(find_runs(folder.path() / "a"), ElementsAre(folder.path() / "a"));
  EXPECT_THAT(find_runs(folder.path() / "absent"), IsEmpty());
}

TEST(RecipeKeys, AreFlat) {
  const TemporaryFolder folder;
  const fs::path run = make_run(folder.path() / "a", "");
  EXPECT_THAT(
      read_recipe_keys(run / kRunRecipe),
      ElementsAre(Pair("model.name", "smallcnn"), Pair("train.batch", "64"), Pair("train.sizes", "[1, 2]")));
  write_file_atomically(run / kRunRecipe, "model:\n  name: llama\n  path: /models/Tiny/\n");
  EXPECT_EQ(model_name_in(run / kRunRecipe), "Tiny");
}

TEST(Samples, AreRegularFilesOfTheSamplesFolder) {
  const TemporaryFolder folder;
  const fs::path samples = folder.path() / "samples";
  fs::create_directory(samples);
  write_file_atomically(folder.path() / "secret", "secret");
  for (const char* name : {"step-000020-0.png", "step-000010-0.png", "step-1234567-cat.png", "step--1-0.png",
                           "step-000010-.png", "other.png", "step-000010-0.jpg"})
    write_file_atomically(samples / name, name);
  fs::create_symlink(folder.path() / "secret", samples / "step-000030-0.png");
  std::vector<std::string> found;
  for (const SampleImage& image : list_samples(folder.path()))
    found.push_back(fmt::format("{} {}", image.name, image.step));
  EXPECT_THAT(found, ElementsAre("0 10", "0 20", "cat 1234567"));
  EXPECT_EQ(read_sample(folder.path(), 20, "0"), "step-000020-0.png");
  EXPECT_EQ(read_sample(folder.path(), 30, "0"), std::nullopt);
  EXPECT_EQ(read_sample(folder.path(), 20, "../../secret"), std::nullopt);
  EXPECT_EQ(read_sample(folder.path(), 20, "1"), std::nullopt);
  EXPECT_EQ(read_sample(folder.path(), -1, "0"), std::nullopt);
}

}  // namespace
}  // namespace hearth::ui
