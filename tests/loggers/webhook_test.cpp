#include "loggers/webhook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "loggers/follower.h"
#include "loggers/processes.h"
#include "net/local_server.h"
#include "written_run.h"

namespace hearth::loggers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

std::vector<Json> bodies_of(LocalServer& server) {
  std::vector<Json> bodies;
  for (const std::string& request : server.requests())
    bodies.push_back(Json::parse(request.substr(request.find("\r\n\r\n") + 4)));
  return bodies;
}

std::vector<std::string> events_of(LocalServer& server) {
  std::vector<std::string> events;
  for (const Json& body : bodies_of(server)) events.push_back(body.at("event"));
  return events;
}

/// Writes a run of two evaluations, of which the second is better, and a training log of three steps.
void write_run(const WrittenRun& run) {
  io::RunLog log = run.open_log();
  const std::pair<const char*, double> accuracy = {"accuracy", 0.75};
  write_steps(log, 1, 2);
  log.evaluation(2, 0.5, std::span(&accuracy, 1), true);
  log.evaluation(3, 0.75, std::span(&accuracy, 1));
  write_steps(log, 3, 3);
}

/// Follows a finished run with a webhook. `failures`: failures of workers before the end.
std::vector<std::string> follow_with_webhook(const std::string& url, const WrittenRun& run, const RunEnd& end,
                                             std::vector<std::string> failures = {}, int num_waits = 0) {
  std::vector<std::string> said;
  const std::unique_ptr<Logger> logger = open_webhook(url);
  bool has_ended = false;
  follow(*logger, {.logger = "webhook",
                   .run = run.path(),
                   .project = "",
                   .name = "my run",
                   .wait = [&](double seconds) -> std::optional<Notice> {
                     if (!failures.empty() && seconds > 0) {
                       const Notice notice{.is_end = false, .end = {EndState::crashed, failures.back()}};
                       failures.pop_back();
                       return notice;
                     }
                     if (seconds == 0 || num_waits-- > 0 || std::exchange(has_ended, true))
                       return std::nullopt;
                     return Notice{.is_end = true, .end = end};
                   },
                   .say = [&](const std::string& text) { said.push_back(text); },
                   .poll_seconds = 1e-9,
                   .first_retry_seconds = 1e-9,
                   .end_seconds = 0.1,
                   .end_seconds_if_failing = 0.1});
  return said;
}

TEST(Webhook, PostsStartBestCrashAndEndInOrder) {
  LocalServer server([](const std::string&) { return http_response("204 No Content"); });
  const WrittenRun run;
  write_run(run);
  EXPECT_THAT(follow_with_webhook(server.url("/hook?key=1"), run, {EndState::done, ""}, {"SIGSEGV"}),
              ElementsAre());
  EXPECT_THAT(events_of(server), ElementsAre("start", "best", "crash", "end"));
  EXPECT_THAT(server.requests()[0], HasSubstr("POST /hook?key=1 HTTP/1.1"));
  const std::vector<Json> bodies = bodies_of(server);
  EXPECT_EQ(bodies[0].at("run"), "my run");
  EXPECT_EQ(bodies[0].at("folder"), run.path().string());
  const Json metrics = {{"eval/loss", 0.5}, {"eval/accuracy", 0.75}};
  EXPECT_EQ(bodies[1].at("metrics"), metrics);
  EXPECT_THAT(bodies[1].at("text"), HasSubstr("step 2: eval/accuracy 0.75, eval/loss 0.5"));
  EXPECT_THAT(bodies[2].at("content"), HasSubstr("SIGSEGV"));
  EXPECT_EQ(bodies[2].at("is_final"), false);
  EXPECT_EQ(bodies[3].at("step"), 3);
  EXPECT_EQ(bodies[3].at("is_complete"), true);
}

TEST(Webhook, RepeatsAMessageThatTheServerRefused) {
  std::atomic<int> number{0};
  LocalServer server([&](const std::string&) {
    return http_response(number++ % 2 == 0 ? "500 Internal Server Error" : "200 OK", "",
                         "{\"message\": \"busy\"}");
  });
  const WrittenRun run;
  write_run(run);
  const auto said = follow_with_webhook(server.url(), run, {EndState::interrupted, ""}, {}, 20);
  EXPECT_THAT(said.front(), HasSubstr("webhook: http://127.0.0.1"));
  EXPECT_THAT(said.front(), HasSubstr("answered with HTTP status 500: busy; training continues"));
  // Each message twice: refused, then accepted. Only the last one has no second attempt.
  EXPECT_THAT(events_of(server), ElementsAre("start", "start", "best", "best", "end"));
}

TEST(Webhook, EndsWhileTheServerDoesNotAnswer) {
  std::atomic<bool> is_over{false};
  LocalServer server([&](const std::string&) {
    while (!is_over) usleep(1000);
    return std::string();
  });
  const WrittenRun run;
  write_run(run);
  std::vector<std::string> said;
  // The end of the run arrives while the first request waits.
  const std::unique_ptr<Logger> logger = open_webhook(server.url());
  bool has_ended = false;
  follow(*logger, {.logger = "webhook",
                   .run = run.path(),
                   .project = "",
                   .name = "",
                   .wait = [&](double) -> std::optional<Notice> {
                     if (std::exchange(has_ended, true)) return std::nullopt;
                     return Notice{.is_end = true, .end = {EndState::done, ""}};
                   },
                   .say = [&](const std::string& text) { said.push_back(text); },
                   .end_seconds = 0.1});
  is_over = true;
  ASSERT_EQ(said.size(), 1U);
  EXPECT_THAT(said[0], HasSubstr("not all reports of the run were sent"));
}

TEST(Webhook, SaysThatNoServerIsThere) {
  std::string url;
  {
    const LocalServer server([](const std::string&) { return http_response("200 OK"); });
    url = server.url("/secret");
  }
  const WrittenRun run;
  write_run(run);
  const auto said = follow_with_webhook(url, run, {EndState::done, ""}, {}, 5);
  ASSERT_EQ(said.size(), 2U);
  for (const std::string& text : said) EXPECT_EQ(text.find("secret"), text.npos) << text;
}

TEST(Webhook, ReadsTheUrlFromTheEnvironment) {
  EXPECT_EQ(webhook_url("https://a/b"), "https://a/b");
  setenv("HEARTH_TEST_HOOK", "http://c", 1);
  EXPECT_EQ(webhook_url("env:HEARTH_TEST_HOOK"), "http://c");
  for (const char* value : {"", "no URL"}) {
    setenv("HEARTH_TEST_HOOK", value, 1);
    EXPECT_THROW(webhook_url("env:HEARTH_TEST_HOOK"), UserError);
  }
}

TEST(LoggerProcesses, ReportTheEndAndItsAbsence) {
  for (const bool finishes : {true, false}) {
    std::atomic<int> number{0};
    LocalServer server([&](const std::string&) {
      ++number;
      return http_response("200 OK");
    });
    const WrittenRun run;
    {
      LoggerProcesses loggers({.to = {}, .webhook = server.url(), .project = "", .name = ""}, run.path(),
                              false, [](const std::string& text) { ADD_FAILURE() << text; });
      write_run(run);
      loggers.report_failure("SIGSEGV");
      while (number < 3) usleep(1000);
      if (finishes) loggers.finish({EndState::done, ""});
    }
    while (number < 4) usleep(1000);
    EXPECT_THAT(events_of(server),
                testing::UnorderedElementsAre("start", "best", "crash", finishes ? "end" : "crash"));
    EXPECT_EQ(bodies_of(server)[3].at("event"), finishes ? "end" : "crash");
    EXPECT_EQ(bodies_of(server)[3].value("is_final", false), !finishes);
  }
}

TEST(LoggerProcesses, RefuseALoggerThatIsNotConfigured) {
  unsetenv("MLFLOW_TRACKING_URI");
  const WrittenRun run;
  const auto say = [](const std::string&) {};
  EXPECT_THROW(LoggerProcesses({.to = {recipe::Logger::mlflow}, .webhook = "", .project = "", .name = ""},
                               run.path(), false, say),
               UserError);
  EXPECT_THROW(LoggerProcesses({.to = {}, .webhook = "env:HEARTH_NO_SUCH", .project = "", .name = ""},
                               run.path(), false, say),
               UserError);
}

}  // namespace
}  // namespace hearth::loggers
