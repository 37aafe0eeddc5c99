#include "io/run_request.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "temporary_folder.h"

namespace hearth::io {
namespace {

/// Returns the next request, or none after a second.
RunRequest next_of(RequestReader& reader) {
  for (int i = 0; i < 20; ++i) {
    if (const RunRequest request = reader.take(); request != RunRequest::none) return request;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return RunRequest::none;
}

TEST(RunRequest, ArrivesOnce) {
  const TemporaryFolder run;
  RequestReader reader(run.path());
  EXPECT_EQ(next_of(reader), RunRequest::none);
  for (const RunRequest request : {RunRequest::checkpoint, RunRequest::stop}) {
    send_request(run.path(), request);
    EXPECT_EQ(next_of(reader), request);
    EXPECT_FALSE(path_exists(run.path() / ".request"));
    EXPECT_EQ(next_of(reader), RunRequest::none);
  }
  send_request(run.path(), RunRequest::checkpoint);
  send_request(run.path(), RunRequest::stop);
  EXPECT_EQ(next_of(reader), RunRequest::stop);
}

TEST(RunRequest, OfAnEarlierProcessIsDeleted) {
  const TemporaryFolder run;
  send_request(run.path(), RunRequest::stop);
  RequestReader reader(run.path());
  EXPECT_EQ(next_of(reader), RunRequest::none);
}

TEST(RunRequest, UnknownWordsAndLinksHaveNoEffect) {
  const TemporaryFolder run;
  RequestReader reader(run.path());
  write_file_atomically(run.path() / ".request", "stop everything");
  EXPECT_EQ(next_of(reader), RunRequest::none);
  write_file_atomically(run.path() / "target", "stop");
  fs::create_symlink(run.path() / "target", run.path() / ".request");
  EXPECT_THROW(send_request(run.path(), RunRequest::stop), UserError);
  EXPECT_EQ(next_of(reader), RunRequest::none);
  EXPECT_EQ(read_file(run.path() / "target"), "stop");
}

}  // namespace
}  // namespace hearth::io
