#include "engine/optimizer.h"
#include "ir/op_def.h"
#include "ir/state_name.h"

namespace hearth::engine {

std::vector<RunningStatistic> take_statistics(ir::Graph& graph) {
  std::vector<RunningStatistic> found;
  for (ir::Node& node : graph.nodes) {
    if (node.op->name != "batch_norm") continue;
    const double momentum = node.attrs.real_or("momentum", 0.1);
    for (const char* name : {"running_mean", "running_var"}) {
      const size_t input = node.op->input_index(name);
      const ir::Value running = graph.value(node.inputs[input]);
      found.push_back({.name = running.name, .type = running.type, .momentum = momentum});
      node.inputs[input] = graph.add_value(ir::spell(ir::StateKind::batch_statistic, running.name),
                                           running.type, ir::Role::carried);
    }
    node.attrs.set("momentum", 1.0);
  }
  return found;
}

}  // namespace hearth::engine
