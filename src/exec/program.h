#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arena/problem.h"
#include "arena/solve.h"
#include "backend/gpu/driver.h"
#include "cost/device.h"
#include "exec/memory.h"
#include "exec/waits.h"
#include "ir/graph.h"
#include "ir/op_def.h"

namespace hearth::exec {

enum class Backend : uint8_t { cpu, gpu, null };

struct CompileOptions {
  Backend backend = Backend::cpu;
  const gpu::Driver* driver = nullptr;  ///< of Backend::gpu: whose kernels
  int num_threads = 1;
  bool winograd = true;  ///< convolutions on the CPU may use Winograd's algorithm
  /// Values whose bytes count as gradients in the memory report.
  std::vector<ir::ValueId> gradients;
  /// Of Backend::gpu: whether the GPU's kernel may be used; null: every one.
  std::function<bool(const ir::OpDef&, const ir::NodeView&)> trusts;
  /// What the seconds of steps are modeled on.
  cost::Device device;
  /// Without offsets a program only says what it needs: its height is its lower bound.
  bool pack = true;
};

/// Arena bytes at the moment of the peak, by purpose; the packed height and its lower bound.
struct ArenaReport {
  int64_t activation_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t height_bytes = 0;
  int64_t bound_bytes = 0;
  int64_t host_bytes = 0;  ///< activations in host memory, beside the arena
  double flops = 0;
};

/// One kernel, and the nodes that it takes together: `num_nodes` from number `node` on.
struct Step {
  ir::Kernel kernel;
  size_t node = 0;
  size_t num_nodes = 1;
  int64_t workspace_buffer = -1;  ///< of Program::problem
  Queue queue = Queue::compute;
  bool on_host = false;  ///< a collective that the host makes
  double seconds = 0;    ///< by the model of CompileOptions::device
};

/// Where a value lies, in memory that Executor::bind names.
struct Location {
  enum class In : uint8_t {
    none,
    arena,
    host_arena,
    weights,       ///< on the device that computes
    host_weights,  ///< of a GPU's program: weights and states that stay in host memory
    staging,       ///< of a GPU's program: inputs and scalars
    scalars,       ///< of a processor's program, a line of 64 bytes each
    caller,        ///< an input that the caller binds
  };
  In in = In::none;
  int64_t offset = 0;
};

/// An input or scalar of a program.
struct ProgramInput {
  ir::ValueId id = ir::kNone;
  int64_t scalar_offset = -1;   ///< in the executor's scalars; -1: an input
  int64_t staging_offset = -1;  ///< of a GPU's program
};

/// A compiled graph: a flat list of prepared kernels, and an offset for every value. Plain data, made without
/// a device; an Executor runs it.
struct Program {
  ir::Graph graph;
  Backend backend = Backend::cpu;
  std::vector<Step> steps;
  std::vector<ir::ValueId> root;    ///< of each value, what it is a view of; itself, if nothing
  std::vector<Location> locations;  ///< of each value; none, where nothing is packed
  std::map<std::string, ProgramInput, std::less<>> inputs;
  arena::Problem problem, host_problem;
  arena::Solution solution, host_solution;
  ArenaReport report;
  int64_t staging_bytes = 0;
  int64_t large_bytes = 0;  ///< at the front of them: inputs worth sending ahead
  int64_t scalar_bytes = 0;
  int num_host_nodes = 0;  ///< that the host computes for the GPU

  int64_t arena_bytes() const { return report.height_bytes; }
  std::span<const ir::Node> nodes_of(const Step& step) const {
    return {&graph.nodes[step.node], step.num_nodes};
  }
  bool has_collectives() const;
  /// Of its steps, one after another, by the model.
  double seconds() const;
};

/// How long work may take that takes `seconds` by the model before it counts as stuck: many times as long,
/// for the GPU may be a slower one, and kernels are at times a tenth as fast as the model has them.
double allowed_seconds(double seconds);

/// Prepares the kernels and packs the values. The layout has the graph's weights and states.
Program compile(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options);

/// What the steps of each queue must wait for. The program is packed.
Waits find_waits(const Program& program);

/// Workspace bytes of a node's kernel, which is prepared and thrown away.
int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options);

}  // namespace hearth::exec
