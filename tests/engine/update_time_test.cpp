// How long an update may take before it counts as stuck, and who is told.
#include <gtest/gtest.h>

#include <array>

#include "distributed/forwarding_group.h"
#include "distributed/shm/shm.h"
#include "engine/engine.h"
#include "tasks/classify/classifier.h"

namespace hearth::engine {
namespace {

/// Keeps what it is told.
class ToldGroup : public distributed::ForwardingGroup {
 public:
  using ForwardingGroup::ForwardingGroup;
  void allow(double seconds) override { told = seconds; }
  double told = 0;
};

double told(int64_t batch, int64_t accumulate, double flops_per_second) {
  const std::array<int64_t, 1> sizes = {batch};
  EngineOptions options{.objective = tasks::classifier({.model = {.name = "smallcnn", .image_size = 16}}),
                        .batch = batch,
                        .accumulate = accumulate};
  options.device.full_flops_per_second = flops_per_second;
  Engine engine(options, sizes, {});
  const distributed::HeartbeatBoard board(1);
  engine.set_heartbeat(distributed::Heartbeat(board.entry(0)));
  distributed::ShmGroup group(1);
  const auto own = group.open(0);
  ToldGroup joined(*own);
  engine.join(joined);
  EXPECT_GT(joined.told, 0);
  EXPECT_EQ(board.entry(0).allowed_ns, static_cast<int64_t>(1e9 * joined.told));
  return joined.told;
}

TEST(UpdateTime, GrowsWithItsModelAndIsToldTheWatcherAndTheGroup) {
  const double usual = told(8, 1, 1e11);
  EXPECT_LT(usual, 60) << "of a small model";
  EXPECT_GT(told(64, 1, 1e11), 4 * usual);
  EXPECT_GT(told(8, 4, 1e11), 3 * usual);
  EXPECT_GT(told(8, 1, 1e7), 1000 * usual) << "on a slow device";
}

}  // namespace
}  // namespace hearth::engine
