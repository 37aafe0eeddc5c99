#include "exec/device/display.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "backend/gpu/emu/stream.h"
#include "exec/device/gpu.h"
#include "ops/op_list.h"

namespace hearth::exec {
namespace {

/// A program whose nodes take so long.
Program program_of(std::initializer_list<std::pair<Queue, double>> steps) {
  Program program;
  for (const auto& [queue, seconds] : steps) {
    program.steps.push_back({.node = program.graph.nodes.size(), .queue = queue, .seconds = seconds});
    program.graph.nodes.emplace_back().name = fmt::format("node {}", program.steps.size());
  }
  return program;
}

TEST(Displays, MakeLongKernelsAWarning) {
  const Program program = program_of({{Queue::compute, 0.1}, {Queue::compute, 0.6}, {Queue::in, 3}});
  const gpu::DeviceInfo gpu{.name = "RX 7900 XT", .pci_address = "0000:03:00.0", .has_display = true};
  EXPECT_THAT(display_warning(gpu, program),
              testing::AllOf(testing::HasSubstr("RX 7900 XT (0000:03:00.0)"),
                             testing::HasSubstr("while 'node 2' runs, 0.6 s")));
  EXPECT_EQ(display_warning({.name = "RX 7900 XT"}, program), "");
  EXPECT_EQ(display_warning(gpu, program_of({{Queue::compute, 0.4}, {Queue::in, 3}})), "");
  EXPECT_EQ(display_warning(gpu, {}), "");
}

TEST(Displays, AreLeftMoreMemory) {
  emu::gpus() = {{.memory_bytes = int64_t{4} << 30}, {.memory_bytes = int64_t{4} << 30, .has_display = true}};
  EXPECT_EQ(Gpu({.device = "emulated:0", .reserve_bytes = {}}).usable_bytes(0), int64_t{7} << 29);
  EXPECT_EQ(Gpu({.device = "emulated:1", .reserve_bytes = {}}).usable_bytes(0), int64_t{3} << 30);
  EXPECT_EQ(Gpu({.device = "emulated:1", .reserve_bytes = 1 << 20}).usable_bytes(0),
            (int64_t{4} << 30) - (1 << 20));
  emu::gpus() = {{}};
}

TEST(Displays, AreNotOnAGpuThatIsNotThere) { EXPECT_FALSE(has_display("ffff:ff:1f.7")); }

}  // namespace
}  // namespace hearth::exec
