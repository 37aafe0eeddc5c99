#include "base/output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth {
namespace {

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const fs::path& path : list_folder(folder)) names.push_back(path.filename().string());
  return names;
}

/// Runs in a child that is killed when it is done.
template <typename Work>
void run_and_kill(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

class Output : public testing::Test {
 protected:
  fs::path at(const std::string& name) const { return folder_.path() / name; }
  TemporaryFolder folder_;
};

TEST_F(Output, AFolderAppearsWhole) {
  for (const char* name : {"new", "a/b/new", "empty", "link/"}) {
    fs::create_directories(at("empty"));
    fs::create_directories(at("target"));
    if (!fs::exists(at("link"))) fs::create_symlink("target", at("link"));
    NewFolder folder(at(name));
    write_file_atomically(folder.contents() / "x", "text");
    EXPECT_FALSE(fs::exists(at(name) / "x"));
    folder.commit();
    EXPECT_EQ(read_file(at(name) / "x"), "text");
    EXPECT_EQ(names_in(at(name)), std::vector<std::string>{"x"}) << name;
  }
  EXPECT_TRUE(fs::is_symlink(at("link")));
  EXPECT_THAT(names_in(folder_.path()), testing::UnorderedElementsAre("new", "a", "empty", "target", "link"));
}

TEST_F(Output, AnEmptyFolderStaysTheFolderThatItIs) {
  fs::create_directories(at("mine"));
  ASSERT_EQ(chmod(at("mine").c_str(), 0711), 0);
  struct stat before {
  }, after{};
  ASSERT_EQ(stat(at("mine").c_str(), &before), 0);
  NewFolder folder(at("mine"));
  write_file_atomically(folder.contents() / "x", "");
  folder.commit();
  ASSERT_EQ(stat(at("mine").c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_EQ(before.st_mode, after.st_mode);
}

TEST_F(Output, ANewFolderHasThePermissionsOfOthers) {
  fs::create_directories(at("other"));
  NewFolder folder(at("new"));
  folder.commit();
  EXPECT_EQ(fs::status(at("new")).permissions(), fs::status(at("other")).permissions());
}

TEST_F(Output, WhatIsNotCommittedIsDeletedAndNothingElse) {
  fs::create_directories(at("new.partial"));
  write_file_atomically(at("new.tmp"), "mine");
  for (const char* name : {"new", "a/b/new"}) {
    const NewFolder folder(at(name));
    write_file_atomically(folder.contents() / "x", "text");
  }
  EXPECT_THAT(names_in(folder_.path()), testing::UnorderedElementsAre("new.partial", "new.tmp"));
}

TEST_F(Output, PlacesThatAreTakenAreRefused) {
  write_file_atomically(at("file"), "mine");
  fs::create_directories(at("full"));
  write_file_atomically(at("full/x"), "mine");
  fs::create_symlink("nowhere", at("dangling"));
  for (const char* name : {"file", "full", "dangling", "file/new"})
    EXPECT_THROW(NewFolder{at(name)}, UserError) << name;
  EXPECT_THROW(NewFolder{"/proc/hearth"}, UserError);
  EXPECT_THROW(check_writable_folder("/proc/hearth"), UserError);
  EXPECT_THROW(check_writable_folder(at("file")), UserError);
  EXPECT_THROW(check_writable_file("/proc/hearth"), UserError);
  EXPECT_THROW(check_writable_file(at("full")), UserError);
  EXPECT_THROW(check_writable_file(at("none/file")), UserError);
  check_writable_folder(at("full"));
  check_writable_folder(at("x/y"));
  check_writable_file(at("file"));
  check_writable_file("/dev/null");
  EXPECT_EQ(read_file(at("file")), "mine");
  EXPECT_THAT(names_in(folder_.path()), testing::UnorderedElementsAre("file", "full", "dangling"));
}

TEST_F(Output, APlaceThatIsTakenMeanwhileIsLeftAlone) {
  fs::create_directories(at("empty"));
  for (const char* name : {"new", "empty"}) {
    NewFolder folder(at(name));
    write_file_atomically(folder.contents() / "x", "ours");
    fs::create_directories(at(name));
    write_file_atomically(at(name) / "x", "mine");
    EXPECT_THROW(folder.commit(), UserError);
    EXPECT_EQ(read_file(at(name) / "x"), "mine");
  }
}

TEST_F(Output, WhatKilledProcessesLeftGoesWithTheNextOnesWork) {
  fs::create_directories(at("empty"));
  for (const char* name : {"new", "empty"}) {
    run_and_kill([&] {
      const auto* folder = new NewFolder(at(name));
      write_file_atomically(folder->contents() / "x", "half");
    });
  }
  run_and_kill([&] { new Temporary(at("file"), Temporary::Kind::file); });
  EXPECT_EQ(names_in(folder_.path()).size(), 3U);
  EXPECT_EQ(names_in(at("empty")).size(), 1U);
  for (const char* name : {"new", "empty"}) {
    NewFolder folder(at(name));
    folder.commit();
    EXPECT_TRUE(fs::is_empty(at(name)));
  }
  // One that is being written stays.
  const Temporary held(at("file"), Temporary::Kind::file);
  write_file_atomically(at("file"), "whole");
  EXPECT_TRUE(fs::exists(held.path()));
  EXPECT_THAT(names_in(folder_.path()),
              testing::UnorderedElementsAre("new", "empty", "file", held.path().filename().string()));
}

TEST_F(Output, LongNamesHaveTemporaryOnesToo) {
  const fs::path file = at(std::string(255, 'n'));
  write_file_atomically(file, "text");
  EXPECT_EQ(read_file(file), "text");
}

}  // namespace
}  // namespace hearth
