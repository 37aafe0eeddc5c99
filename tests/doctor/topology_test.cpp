// How the GPUs of planted machines hang together, and what follows for runs that they share.
#include "doctor/topology.h"

#include <gmock/gmock.h>

#include "planted.h"
#include "temporary_folder.h"

namespace hearth::doctor {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PlantedTopology : public testing::Test {
 protected:
  void look(const std::string& name) {
    plant(machines_folder() / (name + ".machine"), folder_.path());
    system::Tree tree(folder_.path());
    machine = system::read_machine(tree);
    topology = topology_of(machine);
  }
  system::Machine machine;
  Topology topology;

 private:
  TemporaryFolder folder_;
};

TEST_F(PlantedTopology, GoesByTheSlowestLinkOfEach) {
  look("two-radeons-x16-x4");
  ASSERT_EQ(topology.gpus.size(), 2U);
  EXPECT_NEAR(topology.gpus[0].link_bytes_per_second, 31.5e9, 0.1e9);
  EXPECT_NEAR(topology.gpus[1].link_bytes_per_second, 7.9e9, 0.1e9);
  EXPECT_EQ(topology.gpus[1].shares, "");
  EXPECT_NEAR(topology.common_bytes_per_second(), 7.9e9, 0.1e9);
}

TEST_F(PlantedTopology, HalvesWhatTwoShare) {
  look("two-radeons-one-bridge");
  EXPECT_EQ(topology.gpus[0].shares, "0000:04:00.0");
  EXPECT_EQ(topology.gpus[1].shares, "0000:04:00.0");
  EXPECT_NEAR(topology.common_bytes_per_second(), 3.94e9, 0.05e9);
  EXPECT_THAT(to_text(machine, topology), HasSubstr("shares the bridge 0000:04:00.0 with another GPU"));
}

TEST_F(PlantedTopology, WhatWasMeasuredCounts) {
  look("two-radeons-x16-x4");
  for (Topology::Gpu& one : topology.gpus) one.together_bytes_per_second = 12e9;
  EXPECT_EQ(topology.common_bytes_per_second(), 12e9);
}

TEST_F(PlantedTopology, SharesWorseWhereLinksAreSlow) {
  look("two-radeons-x16-x4");
  const std::vector<SharedTraining> slow = model_sharing(topology);
  for (Topology::Gpu& one : topology.gpus) one.together_bytes_per_second = 28e9;
  const std::vector<SharedTraining> fast = model_sharing(topology);
  ASSERT_EQ(slow.size(), 3U);
  for (size_t i = 0; i < slow.size(); ++i) {
    EXPECT_GT(slow[i].speedup, 0.2) << slow[i].name;
    EXPECT_LE(slow[i].speedup, fast[i].speedup) << slow[i].name;
    // Each update is spread over twice the samples.
    EXPECT_LT(fast[i].speedup, 2.1) << slow[i].name;
  }
  EXPECT_LT(slow[2].speedup, fast[2].speedup) << "all gradients of a Llama are large";
  EXPECT_THAT(to_text(machine, topology),
              AllOf(HasSubstr("devices=2"), HasSubstr("hearth plan RECIPE devices=2 --link 28.0")));
}

TEST_F(PlantedTopology, OfOneGpuOrNoneAdvisesNothing) {
  look("radeon");
  EXPECT_THAT(to_text(machine, topology), AllOf(HasSubstr("0000:03:00.0"), Not(HasSubstr("devices="))));
  EXPECT_EQ(to_text({}, {}), "there is no GPU with memory of its own\n");
}

}  // namespace
}  // namespace hearth::doctor
