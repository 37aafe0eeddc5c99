#include "loggers/follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "written_run.h"

namespace hearth::loggers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A logger that records what it receives. While `fails` is true, all calls fail.
struct RecordingLogger : Logger {
  std::string open(const RunInfo& run) override {
    fail_if_down();
    calls.push_back("open " + run.id);
    return id;
  }
  void send(const Batch& batch) override {
    fail_if_down();
    size_t num_metrics = 0;
    for (const Row& row : batch.rows) {
      steps.push_back(row.step);
      num_metrics += row.metrics.size();
    }
    EXPECT_LE(num_metrics, RunReader::kMaxMetrics);
    rows.insert(rows.end(), batch.rows.begin(), batch.rows.end());
    for (const Image& image : batch.images) images.push_back(image.name);
  }
  bool wants_failures() const override { return true; }
  void send_failure(const std::string& text) override {
    fail_if_down();
    calls.push_back("failure: " + text);
  }
  void finish(const RunEnd& end) override {
    fail_if_down();
    calls.push_back("finish " + std::to_string(static_cast<int>(end.state)) + end.text);
  }
  void fail_if_down() {
    ++num_calls;
    if (fails) user_error("no answer");
  }

  std::string id = "7";
  bool fails = false;
  int num_calls = 0;
  std::vector<int64_t> steps;
  std::vector<Row> rows;
  std::vector<std::string> calls, images;
};

/// Follows a run until `script`, which is called instead of each wait, has ended. After the script, the run
/// ends as `end`. A step of the script may change the run or the logger.
struct Follow {
  RecordingLogger& logger;
  const WrittenRun& run;
  std::vector<std::function<void()>> script = {};
  RunEnd end = {EndState::done, ""};
  std::vector<Notice> notices = {};
  std::vector<std::string> said = {};
  FileId outdated = {};

  void operator()() {
    size_t next = 0;
    bool has_ended = false;
    follow(logger, {.logger = "test",
                    .run = run.path(),
                    .project = "",
                    .name = "",
                    .outdated_log = outdated,
                    .wait = [&](double seconds) -> std::optional<Notice> {
                      if (seconds == 0) return std::nullopt;
                      if (!notices.empty()) {
                        const Notice notice = notices.front();
                        notices.erase(notices.begin());
                        return notice;
                      }
                      if (next < script.size()) {
                        script[next++]();
                        return std::nullopt;
                      }
                      if (std::exchange(has_ended, true)) return std::nullopt;
                      return Notice{.is_end = true, .end = end};
                    },
                    .say = [&](const std::string& text) { said.push_back(text); },
                    .poll_seconds = 1e-9,
                    .first_retry_seconds = 1e-9});
  }
};

TEST(Follower, SendsWhatTheRunWrites) {
  const WrittenRun run;
  RecordingLogger logger;
  std::optional<io::RunLog> log;
  const std::pair<const char*, double> accuracy = {"accuracy", 0.5};
  Follow follow{
      .logger = logger,
      .run = run,
      .script = {[&] { EXPECT_THAT(logger.calls, IsEmpty()); },
                 [&] {
                   log.emplace(run.path() / "trainer_log.jsonl", -1);
                   write_steps(*log, 1, 2);
                 },
                 [&] {
                   EXPECT_THAT(logger.steps, ElementsAre(1, 2));
                   std::filesystem::create_directory(run.path() / "samples");
                   for (const char* name : {"step-000003-b.png", "step-000003-a.png", "step-000002-c.png"})
                     write_file_atomically(run.path() / "samples" / name, "png");
                   write_steps(*log, 3, 3);
                   log->evaluation(3, 0.25, std::span(&accuracy, 1), true);
                 }}};
  follow();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 3));
  EXPECT_THAT(logger.images, ElementsAre("a", "b"));
  EXPECT_THAT(logger.calls, ElementsAre("open ", "finish 0"));
  EXPECT_THAT(follow.said, IsEmpty());
  EXPECT_TRUE(logger.rows[3].is_best);
  const std::vector<std::pair<std::string, double>> metrics = {{"eval/accuracy", 0.5}, {"eval/loss", 0.25}};
  EXPECT_EQ(logger.rows[3].metrics, metrics);
  EXPECT_EQ(logger.rows[0].metrics[0], std::pair(std::string("train/loss"), 1.0));
  // The times of two updates differ by the time that they took.
  EXPECT_NEAR(logger.rows[1].time - logger.rows[0].time, 0.5, 0.1);
}

TEST(Follower, SendsReportsAfterAnOutage) {
  const WrittenRun run;
  RecordingLogger logger;
  logger.fails = true;
  std::optional<io::RunLog> log;
  std::vector<std::function<void()>> script = {[&] { log.emplace(run.path() / "trainer_log.jsonl", -1); }};
  for (int i = 0; i < 5; ++i) script.emplace_back([&, i] { write_steps(*log, 1 + 2 * i, 2 + 2 * i); });
  script.emplace_back([&] {
    EXPECT_GE(logger.num_calls, 3);
    logger.fails = false;
  });
  for (int i = 0; i < 3; ++i) script.emplace_back([] {});
  Follow follow{.logger = logger, .run = run, .script = script};
  follow();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  EXPECT_THAT(follow.said,
              ElementsAre(HasSubstr("test: no answer; training continues"), HasSubstr("works again")));
}

TEST(Follower, AFailedBatchIsSentAgainOnce) {
  const WrittenRun run;
  RecordingLogger logger;
  io::RunLog log = run.open_log();
  write_steps(log, 1, 1);
  Follow follow{.logger = logger,
                .run = run,
                .script = {[&] {
                             logger.fails = true;
                             write_steps(log, 2, 3);
                           },
                           [&] { write_steps(log, 4, 4); }, [&] { logger.fails = false; }, [] {}}};
  follow();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(logger.calls, ElementsAre("open ", "open 7", "finish 0"));
}

TEST(Follower, GivesUpAtTheEndAndContinuesWhenTheRunResumes) {
  const WrittenRun run;
  RecordingLogger logger;
  {
    io::RunLog log = run.open_log();
    write_steps(log, 1, 2);
    Follow follow{.logger = logger,
                  .run = run,
                  .script = {[&] {
                    logger.fails = true;
                    write_steps(log, 3, 4);
                  }},
                  .end = {EndState::interrupted, ""}};
    follow();
    EXPECT_THAT(logger.steps, ElementsAre(1, 2));
    EXPECT_THAT(follow.said.back(), HasSubstr("hearth resume sends them"));
  }
  logger.fails = false;
  io::RunLog log = run.open_log(3);
  write_steps(log, 4, 5);
  Follow{.logger = logger, .run = run}();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(logger.calls, ElementsAre("open ", "open 7", "finish 0"));
}

TEST(Follower, AReplacedLogIsNotSentTwice) {
  const WrittenRun run;
  RecordingLogger logger;
  std::optional<io::RunLog> log;
  log.emplace(run.path() / "trainer_log.jsonl", -1);
  write_steps(*log, 1, 6);
  Follow follow{.logger = logger,
                .run = run,
                .script = {[&] {
                             EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 4, 5, 6));
                             log.emplace(run.path() / "trainer_log.jsonl", 4);
                             log->event(4, "a worker failed");
                             write_steps(*log, 5, 5);
                           },
                           [&] { write_steps(*log, 6, 8); }}};
  follow();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST(Follower, DoesNotReadTheLogOfAnEarlierRun) {
  const WrittenRun run;
  RecordingLogger logger;
  {
    io::RunLog earlier = run.open_log();
    write_steps(earlier, 1, 3);
  }
  std::optional<io::RunLog> log;
  Follow follow{.logger = logger,
                .run = run,
                .script = {[&] { EXPECT_THAT(logger.steps, IsEmpty()); },
                           [&] {
                             log.emplace(run.path() / "trainer_log.jsonl", -1);
                             write_steps(*log, 1, 1);
                           }},
                .outdated = id_of(run.path() / "trainer_log.jsonl")};
  follow();
  EXPECT_THAT(logger.steps, ElementsAre(1));
}

TEST(Follower, ALoggerThatLostTheRunGetsItAgain) {
  const WrittenRun run;
  RecordingLogger logger;
  io::RunLog log = run.open_log();
  write_steps(log, 1, 2);
  Follow{.logger = logger, .run = run}();
  logger.id = "8";
  logger.steps.clear();
  Follow{.logger = logger, .run = run}();
  EXPECT_THAT(logger.steps, ElementsAre(1, 2));
  EXPECT_THAT(logger.calls, ElementsAre("open ", "finish 0", "open 7", "finish 0"));
}

TEST(Follower, ReportsFailuresWithoutALog) {
  const WrittenRun run;
  RecordingLogger logger;
  Follow{.logger = logger,
         .run = run,
         .end = {EndState::crashed, " gave up"},
         .notices = {{.is_end = false, .end = {EndState::crashed, "SIGSEGV"}}}}();
  EXPECT_THAT(logger.calls, ElementsAre("open ", "failure: SIGSEGV", "finish 2 gave up"));
}

TEST(Follower, SendsEveryLogEveryStepInBoundedBatches) {
  const WrittenRun run("train: {steps: 20000, log_every: 7}");
  RecordingLogger logger;
  {
    io::RunLog log = run.open_log();
    write_steps(log, 1, 20000);
  }
  Follow{.logger = logger, .run = run}();
  ASSERT_EQ(logger.steps.size(), 1U + 20000 / 7 + 1);  // step 100 is the last one of the log's total
  EXPECT_EQ(logger.steps[1], 7);
  EXPECT_EQ(logger.steps.back(), 20000 / 7 * 7);
}

TEST(Follower, ReadsDamagedFilesOfARun) {
  const WrittenRun run;
  std::filesystem::create_directory(run.path() / "loggers");
  for (const char* state : {"", "[]", "{\"id\": 5}", "{\"train_step\": \"x\"}"}) {
    RecordingLogger logger;
    std::ofstream(run.path() / "loggers" / "test.json") << state;
    std::ofstream(run.path() / "trainer_log.jsonl")
        << "{\"current_steps\": "
           "\"x\"}\n[[[[\n\xff\n{\"current_steps\":1,\"loss\":null}\n{\"current_steps\":2,\"loss\":4,"
           "\"gpu\":[5,{\"power_w\":9,\"address\":\"x\"}]}\n{\"current_steps\":3,\"lo";
    Follow follow{.logger = logger, .run = run};
    follow();
    EXPECT_THAT(logger.steps, ElementsAre(1, 2)) << state;
    EXPECT_EQ(logger.rows.back().metrics.back(), std::pair(std::string("gpu1/power_w"), 9.0));
  }
}

}  // namespace
}  // namespace hearth::loggers
