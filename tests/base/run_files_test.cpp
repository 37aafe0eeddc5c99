// Files that several processes write, that somebody deletes, or that are links.
#include "base/run_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"

namespace hearth {
namespace {

using testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ReplaceFile, ManyWritersOfOneFileDoNotDeleteWhatOthersHaveBegun) {
  constexpr int kWriters = 8, kTimes = 100;
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "cache";
  std::atomic<int> num_failed = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&] {
      for (int k = 0; k < kTimes; ++k) {
        if (!error_of([&] { write_file_atomically(file, "tokens"); }).empty()) ++num_failed;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(num_failed, 0);
  EXPECT_EQ(read_file(file), "tokens");
  EXPECT_EQ(list_folder(folder.path()).size(), 1U) << "no leftovers";
}

TEST(Links, AreReplacedByFilesAndRefusedAsFolders) {
  const TemporaryFolder folder, elsewhere;
  const fs::path target = elsewhere.path() / "precious", link = folder.path() / "report.html";
  write_file_atomically(target, "precious");
  fs::create_symlink(target, link);
  write_file_atomically(link, "report");
  EXPECT_EQ(read_file(target), "precious");
  EXPECT_EQ(read_file(link), "report");
  // Devices that a link names are refused too.
  fs::remove(link);
  fs::create_symlink("/dev/null", link);
  EXPECT_THROW(write_file_atomically(link, "report"), UserError);
  EXPECT_NO_THROW(write_file_atomically("/dev/null", "gone"));

  fs::create_directory_symlink(elsewhere.path(), folder.path() / "samples");
  EXPECT_THAT(error_of([&] { make_inner_folder(folder.path() / "samples"); }),
              HasSubstr("samples is a link"));
  EXPECT_NO_THROW(make_inner_folder(folder.path() / "others"));
}

TEST(WatchedFile, IsMissedWhereItIsDeletedOrReplaced) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "log";
  write_file_atomically(file, "one");
  const WatchedFile held(file);
  EXPECT_NO_THROW(held.check());
  write_file_atomically(file, "two");
  EXPECT_THAT(error_of([&] { held.check(); }), HasSubstr("deleted or replaced"));
  fs::remove(file);
  EXPECT_THAT(error_of([&] { held.check(); }), HasSubstr("deleted or replaced"));
}

TEST(WatchedFolder, SaysWhetherItWasMovedOrDeleted) {
  const TemporaryFolder folder;
  const fs::path run = folder.path() / "run", moved = folder.path() / "moved";
  fs::create_directory(run);
  const WatchedFolder held(run);
  fs::rename(run, moved);
  EXPECT_THAT(error_of([&] { held.check(); }), HasSubstr("hearth resume " + moved.string()));
  fs::remove(moved);
  EXPECT_THAT(error_of([&] { held.check(); }), HasSubstr("was deleted or replaced"));
}

}  // namespace
}  // namespace hearth
