#include "io/log_tail.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "temporary_folder.h"

namespace hearth::io {
namespace {

std::string step_line(int step, double loss) {
  return fmt::format(R"({{"current_steps":{},"total_steps":9000,"loss":{},"elapsed_time":{}}})", step, loss,
                     0.5 * step) +
         "\n";
}

TEST(LogTail, IsTheEndOfALongLog) {
  const TemporaryFolder folder;
  std::string text;
  for (int step = 1; step <= 5000; ++step) text += step_line(step, 1.0 / step);
  text +=
      "{\"event\":\"rolled back\"}\nno "
      "JSON\n[1]\n{\"eval_loss\":0.5,\"eval_accuracy\":0.75,\"current_steps\":5000}\n";
  write_file_atomically(folder.path() / "log", text + R"({"current_steps":5001,"loss":)");
  const LogTail tail = read_log_tail(folder.path() / "log");
  EXPECT_EQ(tail.step, 5000);
  EXPECT_EQ(tail.total_steps, 9000);
  EXPECT_NEAR(tail.seconds_per_step, 0.5, 1e-9);
  EXPECT_EQ(tail.losses.size(), 400U);
  EXPECT_EQ(tail.losses.back(), 1.0 / 5000);
  EXPECT_EQ(tail.event, "rolled back");
  EXPECT_EQ(tail.evaluation, "eval_accuracy 0.75  eval_loss 0.5");
}

TEST(LogTail, OfNothingIsEmpty) {
  const TemporaryFolder folder;
  EXPECT_TRUE(read_log_tail(folder.path() / "absent").losses.empty());
  write_file_atomically(folder.path() / "log", "{\"loss\":");
  EXPECT_EQ(read_log_tail(folder.path() / "log").step, 0);
}

}  // namespace
}  // namespace hearth::io
