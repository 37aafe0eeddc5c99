#include "io/run_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <thread>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

TEST(RunLock, KeepsOthersOutAndNamesItself) {
  const TemporaryFolder folder;
  std::optional<RunLock> lock(std::in_place, folder.path(), 0.0);
  try {
    const RunLock second(folder.path(), 0);
    ADD_FAILURE() << "expected UserError";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("process " + std::to_string(getpid()) + " on "));
  }
  lock.reset();
  const RunLock third(folder.path(), 0);
}

TEST(RunLock, IsWaitedFor) {
  const TemporaryFolder folder;
  std::optional<RunLock> lock(std::in_place, folder.path(), 0.0);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock.reset();
  });
  const RunLock second(folder.path(), 60);
  other.join();
  EXPECT_FALSE(lock);
}

TEST(RunLock, OverwritesNoFileBehindALink) {
  const TemporaryFolder folder;
  const fs::path target = folder.path() / "precious", lock = folder.path() / ".lock";
  write_file_atomically(target, "precious");
  fs::create_symlink(target, lock);
  EXPECT_THROW(RunLock(folder.path(), 0), UserError);
  fs::remove(lock);
  fs::create_hard_link(target, lock);
  EXPECT_THROW(RunLock(folder.path(), 0), UserError);
  EXPECT_EQ(read_file(target), "precious");
  fs::remove(lock);
  EXPECT_NO_THROW(RunLock(folder.path(), 0));
}

TEST(RunLock, StopsNobodyWhereNoFileCanBeMade) { EXPECT_NO_THROW(RunLock("/proc", 0)); }

}  // namespace
}  // namespace hearth::io
