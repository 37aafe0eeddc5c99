#include "exec/device/recorder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "exec/device/hang_guard.h"
#include "temporary_folder.h"

namespace hearth::exec {
namespace {

using testing::HasSubstr;

class Recorders : public testing::Test {
 protected:
  /// Starts a process that calls Recorder::start() and then `end`, and exits without calling destructors.
  template <typename End>
  void in_another_process(End end) {
    const pid_t child = fork();
    if (child == 0) {
      Recorder recorder(RecordMode::automatic, gpu_, file_);
      recorder.start("program");
      end(recorder);
      _exit(0);
    }
    waitpid(child, nullptr, 0);
  }

  const TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "recordings.json";
  const gpu::DeviceInfo gpu_{.name = "GPU", .driver_version = "1"};
};

TEST_F(Recorders, LeaveOutWhatAnotherProcessDiedOf) {
  in_another_process([](Recorder&) {});
  Recorder recorder(RecordMode::automatic, gpu_, file_);
  EXPECT_TRUE(recorder.start("another program"));
  EXPECT_FALSE(recorder.start("program"));
  EXPECT_THAT(recorder.fault(), HasSubstr("hung or crashed; to try again, delete " + file_.string()));
  gpu::DeviceInfo updated = gpu_;
  updated.driver_version = "2";
  EXPECT_TRUE(Recorder(RecordMode::automatic, updated, file_).start("program"));
  EXPECT_TRUE(Recorder(RecordMode::always, gpu_, file_).start("program"));
}

TEST_F(Recorders, LeaveOutWhatFailed) {
  in_another_process([](Recorder& recorder) { recorder.turn_off("it failed", "program"); });
  Recorder recorder(RecordMode::automatic, gpu_, file_);
  EXPECT_FALSE(recorder.start("program"));
  EXPECT_THAT(recorder.fault(), testing::StartsWith("it failed; "));
}

TEST_F(Recorders, RecordAgainWhatWasRight) {
  in_another_process([](Recorder& recorder) { recorder.finish("program"); });
  EXPECT_TRUE(Recorder(RecordMode::automatic, gpu_, file_).start("program"));
  EXPECT_TRUE(Recorder(RecordMode::automatic, gpu_, file_).start("program"))
      << "the one before ended in between";
}

TEST(HangGuards, EndAProcessThatHangs) {
  { const HangGuard guard(60, "not said"); }
  EXPECT_EXIT(
      {
        const HangGuard guard(0.05, "it hangs");
        pause();
      },
      testing::KilledBySignal(SIGABRT), "it hangs");
}

}  // namespace
}  // namespace hearth::exec
