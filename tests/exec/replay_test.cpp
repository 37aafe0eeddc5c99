// Hand-made schedules, whose times follow from arithmetic.
#include "exec/replay.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace hearth::exec {
namespace {

using Program = std::vector<SimulatedStep>;

double begin(const Replay& replay, size_t worker, size_t step) { return replay.spans[worker][step].begin; }
double end(const Replay& replay, size_t worker, size_t step) { return replay.spans[worker][step].end; }

TEST(Replay, RunsQueuesBesideEachOtherAndKeepsWaits) {
  const Program program = {{.seconds = 2},
                           {.queue = Queue::out, .seconds = 5, .waits = {0}},
                           {.seconds = 1},
                           {.queue = Queue::in, .seconds = 1},
                           {.seconds = 4, .waits = {1, 3}}};
  const Replay made = replay({&program, 1}, {});
  EXPECT_DOUBLE_EQ(begin(made, 0, 1), 2);
  EXPECT_DOUBLE_EQ(begin(made, 0, 2), 2);
  EXPECT_DOUBLE_EQ(end(made, 0, 3), 1);
  EXPECT_DOUBLE_EQ(begin(made, 0, 4), 7);
  EXPECT_DOUBLE_EQ(made.seconds, 11);
  EXPECT_DOUBLE_EQ(made.exposed_seconds(0), 4);
}

/// Two halves of a backward pass and an update. What the first half made is sent to the host, added up with
/// the other workers', and fetched, beside the second half.
Program with_one_bucket(size_t worker, double first_seconds, double second_seconds, double num_bytes) {
  return {{.seconds = first_seconds},
          {.queue = Queue::out, .num_bytes = num_bytes, .paths = {{.path = worker}}, .waits = {0}},
          {.queue = Queue::exchange, .num_bytes = num_bytes, .paths = {{2, 2}}, .waits = {1}, .meeting = 0},
          {.queue = Queue::in, .num_bytes = num_bytes, .paths = {{.path = worker}}, .waits = {2}},
          {.seconds = second_seconds},
          {.seconds = 1, .waits = {3}}};
}

TEST(Replay, ExposesWhatTheBackwardPassDoesNotHide) {
  constexpr double kSecond = 6;
  for (const double num_bytes : {0.0, 10.0, 20.0, 40.0, 100.0}) {
    const Program programs[] = {with_one_bucket(0, 3, kSecond, num_bytes),
                                with_one_bucket(1, 3, kSecond, num_bytes)};
    // Links of 20 bytes a second each; a memory of 40, which each byte of both sums crosses twice.
    const Replay made = replay(programs, std::vector<double>{20, 20, 40});
    const double exchange = num_bytes / 20 + 2 * 2 * num_bytes / 40 + num_bytes / 20;
    EXPECT_NEAR(made.seconds, 3 + std::max(kSecond, exchange) + 1, 1e-9) << num_bytes;
    for (const size_t worker : {0, 1})
      EXPECT_NEAR(made.exposed_seconds(worker), std::max(0.0, exchange - kSecond), 1e-9) << num_bytes;
  }
}

TEST(Replay, WaitsForTheSlowestWhereAllMeet) {
  const Program programs[] = {with_one_bucket(0, 3, 6, 20), with_one_bucket(1, 30, 6, 20)};
  const Replay made = replay(programs, std::vector<double>{20, 20, 40});
  EXPECT_DOUBLE_EQ(end(made, 0, 1), 4);
  EXPECT_DOUBLE_EQ(begin(made, 0, 2), 31);
  EXPECT_DOUBLE_EQ(begin(made, 1, 2), 31);
  EXPECT_DOUBLE_EQ(made.exposed_seconds(0), made.seconds - 10);
  // One of two that meet has less to move: both are done when the other is.
  const Program uneven[] = {{{.num_bytes = 10, .paths = {{0}}, .meeting = 7}, {.seconds = 1}},
                            {{.num_bytes = 40, .paths = {{1}}, .meeting = 7}}};
  EXPECT_DOUBLE_EQ(replay(uneven, std::vector<double>{10, 10}).seconds, 5);
}

TEST(Replay, SharesPathsAsFarAsTheyCanBeUsed) {
  const auto move = [](double num_bytes, std::vector<PathUse> paths) {
    return Program{{.num_bytes = num_bytes, .paths = std::move(paths)}};
  };
  // The first is held to 2 by its own path, so that the others have 4 each of the shared 10.
  const Program programs[] = {move(20, {{0}, {1}}), move(20, {{1}}), move(40, {{1}})};
  const Replay made = replay(programs, std::vector<double>{2, 10});
  EXPECT_NEAR(end(made, 0, 0), 10, 1e-9);
  EXPECT_NEAR(end(made, 1, 0), 5, 1e-9);
  // 20 bytes by then, and the rest at 8.
  EXPECT_NEAR(end(made, 2, 0), 7.5, 1e-9);
}

TEST(Replay, SaysWhereStepsWaitInACircle) {
  const Program programs[] = {{{.seconds = 1, .meeting = 0}, {.seconds = 1, .meeting = 1}},
                              {{.seconds = 1, .meeting = 1}, {.seconds = 1, .meeting = 0}}};
  EXPECT_THROW(replay(programs, {}), InternalError);
}

}  // namespace
}  // namespace hearth::exec
