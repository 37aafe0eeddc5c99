#include "run/pacer.h"

#include <gtest/gtest.h>

namespace hearth::run {
namespace {

TEST(Pacers, RaiseTheLoadWithin20Seconds) {
  EXPECT_EQ(Pacer::ramp_share(0), 0.5);
  EXPECT_EQ(Pacer::ramp_share(10), 0.25);
  EXPECT_EQ(Pacer::ramp_share(20), 0);
  EXPECT_EQ(Pacer::ramp_share(1e6), 0);
}

class PacersOfGpus : public testing::TestWithParam<bool> {};

TEST_P(PacersOfGpus, RestAtFirstWhereThereAreSensors) {
  supervise::GpuBoard board;
  board.publish({.number = GetParam() ? 1 : 0});
  TrainerEvents events;
  events.gpus = &board;
  const Pacer pacer(events);
  const double seconds = pacer.rest_seconds(0.1);
  if (GetParam()) {
    EXPECT_GT(seconds, 0.05);
    EXPECT_LE(seconds, 0.1);
  } else {
    EXPECT_EQ(seconds, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Sensors, PacersOfGpus, testing::Bool());

}  // namespace
}  // namespace hearth::run
