// Nodes that one kernel takes together are a step of a GPU only where that kernel may be used.
#include <gtest/gtest.h>

#include "backend/gpu/modules.h"
#include "exec/program.h"
#include "ops/op_list.h"

namespace hearth::exec {
namespace {

ir::Graph two_sums() {
  ir::Graph graph;
  const ir::Type type{.dtype = DType::f32, .shape = {8}};
  const ir::ValueId x = graph.add_value("x", type, ir::Role::input);
  for (const char* name : {"a", "b"})
    graph.add(*ops::find_op("accumulate"), {graph.add_value(name, type, ir::Role::state), x}, {}, name);
  return graph;
}

TEST(GroupedSteps, AreForKernelsThatAreTrusted) {
  for (const bool trusted : {true, false}) {
    ir::Graph graph = two_sums();
    PersistentLayout layout;
    layout.add(graph);
    const Program program =
        compile(std::move(graph), layout,
                {.backend = Backend::gpu,
                 .driver = &gpu::emulator(),
                 .trusts = [&](const ir::OpDef&, const ir::NodeView&) { return trusted; }});
    EXPECT_EQ(program.num_host_nodes, trusted ? 0 : 2);
  }
}

}  // namespace
}  // namespace hearth::exec
