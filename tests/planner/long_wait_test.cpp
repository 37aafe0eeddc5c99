#include "planner/long_wait.h"

#include <gtest/gtest.h>

namespace hearth::planner {
namespace {

TEST(LongWait, LongWaitsAreSaidBefore) {
  EXPECT_EQ(long_wait("reading", 29), "");
  EXPECT_EQ(long_wait("reading", 100).find("reading takes about 100 seconds (a rough estimate)"), 0U);
  EXPECT_NE(long_wait("reading", 600).find("10 minutes"), std::string::npos);
  EXPECT_NE(long_wait("reading", 36000).find("10 hours"), std::string::npos);
}

}  // namespace
}  // namespace hearth::planner
