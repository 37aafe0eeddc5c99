#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "io/checkpoint.h"
#include "io/run_log.h"
#include "process.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kRecipe = R"(
model: {name: mlp, num_classes: 10, hidden: [64, 32], dropout: 0.1}
data: {kind: shapes, image_size: 16, count: 203, val_count: 40, flip: true, crop_padding: 2, jitter: 0.2, threads: 2}
train: {steps: 600, batch: 8, accumulate: 2, checkpoint_every: 7, ema: 0.9, clip_norm: 1, eval_every: 45}
optimizer: {name: adamw, lr: 0.001, weight_decay: 0.01}
threads: 2
)";
constexpr int64_t kSteps = 600;

/// Everything of a finished run that a resumed one must have bit for bit.
struct Outcome {
  std::string weights;
  std::string best_weights;
  std::vector<std::byte> optimizer_state;
  std::string counters;
  std::vector<std::vector<io::CurvePoint>> curves;
};

Outcome outcome_of(const fs::path& run) {
  Outcome outcome{.weights = read_file(run / "model.safetensors"),
                  .best_weights = read_file(run / "best.safetensors")};
  const auto found = io::find_newest_checkpoint(run / "checkpoints", nullptr);
  if (!found) return outcome;
  EXPECT_EQ(found->step, kSteps);
  io::CheckpointContents last = io::read_checkpoint(found->path);
  outcome.optimizer_state = std::move(last.memory);
  outcome.counters = last.state;
  for (const char* key : {"loss", "lr", "grad_norm", "eval_loss", "eval_accuracy"}) {
    outcome.curves.push_back(io::read_curve(run / "trainer_log.jsonl", key));
  }
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& want) {
  EXPECT_TRUE(got.weights == want.weights) << "model.safetensors differs";
  EXPECT_TRUE(got.best_weights == want.best_weights) << "best.safetensors differs";
  EXPECT_TRUE(got.optimizer_state == want.optimizer_state) << "the last checkpoint's memory differs";
  EXPECT_EQ(got.counters, want.counters);
  ASSERT_EQ(got.curves.size(), want.curves.size());
  for (size_t k = 0; k < want.curves.size(); ++k) {
    ASSERT_EQ(got.curves[k].size(), want.curves[k].size()) << "curve " << k << " misses or repeats steps";
    for (size_t i = 0; i < want.curves[k].size(); ++i) {
      ASSERT_EQ(got.curves[k][i].step, want.curves[k][i].step) << "curve " << k;
      ASSERT_EQ(got.curves[k][i].value, want.curves[k][i].value) << "curve " << k << ", entry " << i;
    }
  }
}

std::string sha256(const fs::path& path) {
  std::string line(64, '?');
  std::FILE* pipe = popen(("sha256sum '" + path.string() + "'").c_str(), "r");
  if (pipe == nullptr || std::fread(line.data(), 1, line.size(), pipe) != line.size())
    line = "(no sha256sum)";
  if (pipe != nullptr) pclose(pipe);
  return line;
}

bool writing_checkpoint(const fs::path& run) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", code)) {
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  }
  return false;
}

std::vector<std::string> train_command(const fs::path& recipe, const fs::path& run) {
  return {"train", recipe.string(), "--out", run.string(), "--resume"};
}

/// Lets a run go on until a random instant and kills it; every other time the instant lies in the writing of
/// a checkpoint. False when the run ended before.
bool kill_once(const fs::path& recipe, const fs::path& run, double seconds, bool in_checkpoint,
               std::mt19937_64& random) {
  const auto up_to = [&](double most) {
    return std::chrono::duration<double>(std::uniform_real_distribution<>(0, most)(random));
  };
  const auto delay = up_to(seconds);
  const auto more = up_to(0.003);
  Child child(train_command(recipe, run), run.string() + ".out");
  const auto until = Clock::now() + delay;
  while (Clock::now() < until && child.running()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (in_checkpoint) {
    while (child.running() && !writing_checkpoint(run)) std::this_thread::yield();
    std::this_thread::sleep_for(more);
  }
  return child.kill_now();
}

TEST(SlowResume, FiftyKillsChangeNothing) {
  const char* given = std::getenv("HEARTH_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  std::cout << "instants from HEARTH_SEED=" << seed << "\n";
  std::mt19937_64 random(seed);
  const TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml";
  write_file_atomically(recipe, kRecipe);
  const auto begin = Clock::now();
  const fs::path whole = folder.path() / "whole";
  ASSERT_EQ(run_hearth(train_command(recipe, whole), folder.path() / "whole.out").exit_code, 0);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const Outcome want = outcome_of(whole);
  ASSERT_EQ(want.curves.at(0).size(), static_cast<size_t>(kSteps));

  int num_kills = 0;
  int num_in_checkpoint = 0;
  for (int i = 0; num_kills < 50; ++i) {
    const fs::path run = folder.path() / ("run" + std::to_string(i));
    for (int k = 0; k < 6 && num_kills < 50; ++k) {
      if (!kill_once(recipe, run, seconds / 4, k % 2 == 1, random)) break;
      ++num_kills;
      if (writing_checkpoint(run)) ++num_in_checkpoint;
    }
    const Finished last = run_hearth(train_command(recipe, run), folder.path() / "last.out");
    ASSERT_EQ(last.exit_code, 0) << last.output;
    EXPECT_FALSE(writing_checkpoint(run)) << "a half-written checkpoint is left";
    expect_same(outcome_of(run), want);
    if (HasFailure()) FAIL() << "run " << i << " of HEARTH_SEED=" << seed << ", " << num_kills << " kills";
    std::cout << "run " << i << ": model " << sha256(run / "model.safetensors").substr(0, 16) << "\n";
    fs::remove_all(run);
  }
  std::cout << num_kills << " kills, " << num_in_checkpoint
            << " of them inside the writing of a checkpoint; uninterrupted " << seconds << " s, sha256 "
            << sha256(whole / "model.safetensors") << "\n";
  EXPECT_GE(num_in_checkpoint, 5);
}

/// Damages a checkpoint folder in one way.
struct Damage {
  const char* name;
  void (*apply)(const fs::path& checkpoint);
  const char* reason;
};

void flip_a_bit(const fs::path& path) {
  std::string bytes = read_file(path);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  write_file_atomically(path, bytes);
}

constexpr Damage kDamages[] = {
    {"bit", [](const fs::path& c) { flip_a_bit(c / "memory.bin"); }, "memory.bin is damaged"},
    {"short", [](const fs::path& c) { fs::resize_file(c / "memory.bin", 1000); }, "memory.bin is cut short"},
    {"empty", [](const fs::path& c) { fs::resize_file(c / "memory.bin", 0); }, "memory.bin is cut short"},
    {"gone", [](const fs::path& c) { fs::remove(c / "memory.bin"); }, "memory.bin"},
    {"state", [](const fs::path& c) { flip_a_bit(c / "state.json"); }, "state.json is damaged"},
    {"no_manifest", [](const fs::path& c) { fs::remove(c / "manifest.json"); }, "it has no manifest"},
    {"half_manifest", [](const fs::path& c) { fs::resize_file(c / "manifest.json", 40); },
     "manifest is damaged"},
};

TEST(SlowResume, ADamagedCheckpointIsPassedOver) {
  const TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml";
  write_file_atomically(recipe, kRecipe);
  const fs::path whole = folder.path() / "whole";
  ASSERT_EQ(run_hearth(train_command(recipe, whole), folder.path() / "whole.out").exit_code, 0);
  const Outcome want = outcome_of(whole);
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    const fs::path run = folder.path() / damage.name;
    fs::copy(whole, run, fs::copy_options::recursive);
    damage.apply(run / "checkpoints" / "step-000000600");
    const Finished last = run_hearth(train_command(recipe, run), folder.path() / "last.out");
    ASSERT_EQ(last.exit_code, 0) << last.output;
    const size_t at = last.output.find("resuming from ");
    ASSERT_NE(at, std::string::npos) << last.output;
    const std::string line = last.output.substr(at, last.output.find('\n', at) - at);
    EXPECT_NE(line.find("step-000000595 (step 595); passed over step-000000600: "), std::string::npos)
        << line;
    EXPECT_NE(line.find(damage.reason), std::string::npos) << line;
    std::cout << line << "\n";
    expect_same(outcome_of(run), want);
  }
}

}  // namespace
}  // namespace hearth
