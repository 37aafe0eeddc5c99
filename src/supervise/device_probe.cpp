#include "supervise/device_probe.h"

#include "base/error.h"
#include "exec/device/self_test.h"
#include "ops/op_list.h"

namespace hearth::supervise {

std::string probe_gpu(const exec::GpuRequest& wish) {
  ir::Graph graph;
  const ir::ValueId in = graph.add_value("in", {.dtype = DType::f32, .shape = {64}}, ir::Role::input);
  graph.outputs = {graph.add1(*ops::find_op("relu"), {in})};
  exec::SelfTest test(exec::find_gpu(wish.device, wish.number), {.when = SelfTestMode::always});
  test.cover(graph);
  for (const auto& [kernel, what] : test.failures()) return fmt::format("{}: {}", kernel, what);
  return "";
}

}  // namespace hearth::supervise
