// Runs are traced call by call; from whatever a power cut may leave of one, it continues to the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>
#include <set>
#include <sstream>

#include "faults.h"
#include "outcome.h"
#include "traced_disk.h"

namespace hearth {
namespace {

constexpr const char* kSmallRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [8], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 43, val_count: 10, flip: true}
train: {steps: 14, batch: 4, checkpoint_every: 4, eval_every: 3, keep_checkpoints: 1}
optimizer: {name: adamw, lr: 0.001}
threads: 1
supervise: false
)";

/// Of all that cuts may leave, so many are gone on from (HEARTH_CUTS: others; 0: all).
constexpr size_t kMostCuts = 40;

class PowerCut : public testing::Test {
 protected:
  PowerCut() {
    write_file_atomically(recipe_, kSmallRecipe);
    fs::create_directory(disk_);
    const Finished whole = run_hearth(train_command(recipe_, whole_), at("out"));
    EXPECT_EQ(whole.exit_code, 0) << whole.output;
    want_ = result_of(whole_);
  }
  fs::path at(const std::string& name) const { return folder_.path() / name; }

  /// Weights, and the curve of every metric: what somebody who looks at a run sees.
  static std::vector<std::string> result_of(const fs::path& run) {
    std::vector<std::string> result{sha256(run / "model.safetensors"), sha256(run / "best.safetensors")};
    for (const char* key : {"loss", "lr", "eval_loss", "eval_accuracy"}) {
      std::string curve = key;
      for (const io::CurvePoint& point : io::read_curve(run / "trainer_log.jsonl", key))
        curve += fmt::format(" {}:{}", point.step, point.value);
      result.push_back(std::move(curve));
    }
    return result;
  }

  /// The calls of a run in disk/deep/run.
  std::vector<std::string> traced_run(const std::vector<std::string>& overrides = {},
                                      const std::string& interrupt_at = "never") {
    std::vector<std::string> command = train_command(recipe_, run_);
    command.insert(command.end(), overrides.begin(), overrides.end());
    const Faults faults({{"HEARTH_TRACE", at("trace").string()},
                         {"HEARTH_TRACE_ROOT", disk_.string()},
                         {"HEARTH_NO_FLUSH", "1"},
                         {"HEARTH_INTERRUPT_AT", interrupt_at}});
    const Finished finished = run_hearth(command, at("out"));
    EXPECT_EQ(finished.exit_code, interrupt_at == "never" ? 0 : 130) << finished.output;
    std::vector<std::string> calls;
    std::istringstream lines(read_file(at("trace")));
    for (std::string line; std::getline(lines, line);) calls.push_back(line);
    EXPECT_GT(calls.size(), 60U);
    return calls;
  }

  /// From a power cut between any two calls on, the run comes to the same end. Cuts before the first call
  /// that begins with `from` are another test's.
  void expect_the_same_from_everywhere(TracedDisk disk, const std::vector<std::string>& calls,
                                       const std::string& from = "") {
    std::mt19937_64 random(7);
    std::set<TracedDisk::Files> cuts;
    const auto first = std::ranges::find_if(calls, [&](const auto& call) { return call.starts_with(from); });
    ASSERT_NE(first, calls.end());
    for (auto call = calls.begin(); call != calls.end(); ++call) {
      disk.play(*call);
      if (call < first) continue;
      for (const auto& [entries, bytes] : {std::pair(Entries::lost, Bytes::lost),
                                           {Entries::kept, Bytes::lost},
                                           {Entries::kept, Bytes::zeros},
                                           {Entries::kept, Bytes::half},
                                           {Entries::some, Bytes::some},
                                           {Entries::some, Bytes::some}})
        cuts.insert(disk.cut(entries, bytes, random));
    }
    const char* const given = std::getenv("HEARTH_CUTS");
    const size_t wanted = given != nullptr ? std::stoull(given) : kMostCuts;
    std::vector<TracedDisk::Files> chosen(cuts.begin(), cuts.end());
    std::shuffle(chosen.begin(), chosen.end(), random);
    if (wanted != 0 && chosen.size() > wanted) chosen.resize(wanted);
    for (size_t i = 0; i < chosen.size() && !HasFailure(); ++i) resume_from(chosen[i]);
    std::cout << chosen.size() << " of " << cuts.size() << " states of the disk, " << calls.size()
              << " calls\n";
  }

  void resume_from(const TracedDisk::Files& files) {
    fs::remove_all(disk_);
    write_files(files, disk_);
    std::string left;
    for (const auto& [path, contents] : files)
      left += fmt::format("\n  {} {}", path, contents ? std::to_string(contents->size()) : "");
    const Faults faults(std::map<std::string, std::string>{{"HEARTH_NO_FLUSH", "1"}});
    const Finished last = run_hearth(train_command(recipe_, run_), at("out"));
    ASSERT_EQ(last.exit_code, 0) << last.output << left;
    EXPECT_EQ(result_of(run_), want_) << last.output << left;
  }

  const TemporaryFolder folder_;
  const fs::path recipe_ = at("recipe.yaml"), whole_ = at("whole"), disk_ = at("disk"),
                 run_ = disk_ / "deep" / "run";
  std::vector<std::string> want_;
};

TEST_F(PowerCut, InANewRunCostsNoMoreThanTheStepsSinceACheckpoint) {
  const TracedDisk before(disk_);
  expect_the_same_from_everywhere(before, traced_run());
}

TEST_F(PowerCut, WhereACheckpointTakesThePlaceOfTheOnlyOne) {
  const TracedDisk before(disk_);
  // It ends with a checkpoint of the step that has one.
  const std::vector<std::string> calls = traced_run({"train.checkpoint_every=1"}, "/step-000000005");
  expect_the_same_from_everywhere(before, calls, "exchange ");
}

TEST_F(PowerCut, InARunThatGoesOnBehindADamagedCheckpoint) {
  std::vector<std::string> command = train_command(recipe_, run_);
  command.emplace_back("train.keep_checkpoints=2");
  ASSERT_EQ(run_hearth(command, at("out")).exit_code, 0);
  fs::resize_file(run_ / "checkpoints" / "step-000000014" / "memory.bin", 1000);
  const TracedDisk before(disk_);
  expect_the_same_from_everywhere(before, traced_run());
}

}  // namespace
}  // namespace hearth
