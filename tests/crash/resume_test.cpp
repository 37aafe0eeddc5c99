#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <random>
#include <thread>

#include "outcome.h"

namespace hearth {
namespace {

using Clock = std::chrono::steady_clock;

bool writing_checkpoint(const fs::path& run) {
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", code)) {
    if (entry.path().filename().string().starts_with(".tmp-")) return true;
  }
  return false;
}

/// Lets a run continue until a random instant and kills it; every other time the instant lies in the writing
/// of a checkpoint. False when the run ended before.
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
