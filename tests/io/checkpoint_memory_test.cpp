#include "io/checkpoint_memory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>

namespace hearth::io {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kPlenty = int64_t{1} << 40;
constexpr size_t kBytes = 100'000;

std::vector<std::byte> bytes_of(int64_t step) { return std::vector(kBytes, static_cast<std::byte>(step)); }

class CheckpointMemoryTest : public testing::Test {
 protected:
  CheckpointMemoryTest() { EXPECT_TRUE(memory_.make_room(kBytes, kPlenty)); }

  void save(int64_t step) const {
    EXPECT_TRUE(memory_.save("run", step, bytes_of(step), fmt::format("state {}", step)));
  }
  /// The step that a run would continue from; -1: none.
  int64_t newest(std::string_view run = "run") {
    refused_.clear();
    const auto found = memory_.find_newest(run, &refused_);
    if (!found) return -1;
    EXPECT_TRUE(std::ranges::equal(found->memory, bytes_of(found->step)));
    EXPECT_EQ(found->state, fmt::format("state {}", found->step));
    return found->step;
  }
  /// Writes over the memory of a checkpoint, and over no other's.
  static void damage(int64_t step) {
    for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (fs::read_symlink(entry.path(), ignored).string().find("hearth-checkpoints") == std::string::npos)
        continue;
      std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string all(std::istreambuf_iterator<char>(file), {});
      const size_t at = all.find(std::string(kBytes, static_cast<char>(step)));
      ASSERT_NE(at, all.npos);
      file.clear();
      file.seekp(static_cast<std::streamoff>(at + kBytes / 2));
      file.put(99);
    }
  }

  CheckpointMemory memory_;
  std::vector<std::string> refused_;
};

TEST_F(CheckpointMemoryTest, HasTheNewestOfTwo) {
  EXPECT_EQ(newest(), -1);
  for (int64_t step = 1; step < 6; ++step) {
    save(step);
    EXPECT_EQ(newest(), step);
  }
  EXPECT_THAT(refused_, IsEmpty());
}

TEST_F(CheckpointMemoryTest, TheFirstStepIsKeptBesideTheSecond) {
  save(0);
  save(1);
  damage(1);
  EXPECT_EQ(newest(), 0);
}

TEST_F(CheckpointMemoryTest, ADamagedOneIsPassedOver) {
  save(1);
  save(2);
  damage(2);
  EXPECT_EQ(newest(), 1);
  EXPECT_THAT(refused_, ElementsAre("step 2 in memory: memory.bin is damaged"));
  damage(1);
  EXPECT_EQ(newest(), -1);
}

TEST_F(CheckpointMemoryTest, OtherRunsHaveNone) {
  save(1);
  EXPECT_EQ(newest("another run"), -1);
  EXPECT_EQ(newest(), 1);
}

TEST_F(CheckpointMemoryTest, WhatARunHasGoneBackFromIsForgotten) {
  save(7);
  save(8);
  save(4);
  EXPECT_EQ(newest(), 4);
  save(5);
  damage(5);
  EXPECT_EQ(newest(), 4);
}

TEST_F(CheckpointMemoryTest, TakesNoMoreThanHalfOfWhatIsFree) {
  const CheckpointMemory other;
  EXPECT_FALSE(other.make_room(kBytes, 4 * kBytes));
  EXPECT_FALSE(other.find_newest("run", nullptr));
  save(1);
  save(2);
  EXPECT_TRUE(memory_.make_room(kBytes, 4 * kBytes)) << "it has what it needs";
  EXPECT_EQ(newest(), 2);
  EXPECT_TRUE(memory_.make_room(kBytes / 2, kPlenty));
  EXPECT_EQ(newest(), -1) << "of another size";
}

/// Saves from `step` on until it is killed, and tells of each.
[[noreturn]] void save_on(const CheckpointMemory& memory, int64_t step, int pipe) {
  for (;; ++step) {
    if (!memory.save("run", step, bytes_of(step), fmt::format("state {}", step))) _exit(1);
    if (write(pipe, "x", 1) != 1) _exit(1);
  }
}

TEST_F(CheckpointMemoryTest, OutlivesAWriterThatIsKilled) {
  for (int64_t number = 0; number < 40; ++number) {
    const int64_t before = newest();
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t writer = fork();
    if (writer == 0) save_on(memory_, before + 1, ends[1]);
    close(ends[1]);
    char byte = 0;
    for (int64_t i = 0; i < 1 + number % 4; ++i) ASSERT_EQ(read(ends[0], &byte, 1), 1);
    // It is in the next save, or between two.
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    close(ends[0]);
    EXPECT_GE(newest(), before + 1 + number % 4);
    EXPECT_THAT(refused_, IsEmpty());
  }
}

}  // namespace
}  // namespace hearth::io
