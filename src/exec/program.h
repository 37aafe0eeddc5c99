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

/// Device that a program is compiled for; `null` prepares kernels that touch no memory, for planning.
enum class Backend : uint8_t { cpu, gpu, null };

/// Options of compile().
struct CompileOptions {
  Backend backend = Backend::cpu;
  const gpu::Driver* driver = nullptr;  ///< driver of the kernels, for Backend::gpu
  int num_threads = 1;
  bool winograd = true;  ///< convolutions on the CPU may use Winograd's algorithm
  /// Values whose bytes count as gradients in the memory report.
  std::vector<ir::ValueId> gradients;
  /// For Backend::gpu: returns whether a GPU kernel may be used; null: all may.
  std::function<bool(const ir::OpDef&, const ir::NodeView&)> trusts;
  /// Device of the cost model.
  cost::Device device;
  /// False: skips packing; the program has no offsets and its height is the lower bound.
  bool pack = true;
};

/// Arena bytes at the peak, by purpose; the packed height and its lower bound.
struct ArenaReport {
  int64_t activation_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t height_bytes = 0;
  int64_t bound_bytes = 0;
  int64_t host_bytes = 0;  ///< activations in host memory, in addition to the arena
  double flops = 0;
};

/// One kernel call, for the `num_nodes` nodes from index `node` on.
struct Step {
  ir::Kernel kernel;
  size_t node = 0;
  size_t num_nodes = 1;
  int64_t workspace_buffer = -1;  ///< index in Program::problem; -1: no workspace
  Queue queue = Queue::compute;
  bool on_host = false;  ///< true for a collective that runs on the host
  double seconds = 0;    ///< time by the cost model of CompileOptions::device
};

/// Memory region and offset of a value; Executor::bind sets the regions' addresses.
struct Location {
  enum class In : uint8_t {
    none,
    arena,
    host_arena,
    weights,       ///< on the computing device
    host_weights,  ///< GPU programs: weights and states that stay in host memory
    staging,       ///< GPU programs: inputs and scalars
    scalars,       ///< CPU programs: scalars, 64 bytes each
    caller,        ///< an input that the caller binds
  };
  In in = In::none;
  int64_t offset = 0;
};

/// An input or scalar of a program.
struct ProgramInput {
  ir::ValueId id = ir::kNone;
  int64_t scalar_offset = -1;   ///< offset in the executor's scalars; -1: an input
  int64_t staging_offset = -1;  ///< offset in the staging buffer, for GPU programs
};

/// A compiled graph: a flat list of prepared kernels and a location for every value. Plain data that needs no
/// device; an Executor runs it.
struct Program {
  ir::Graph graph;
  Backend backend = Backend::cpu;
  std::vector<Step> steps;
  std::vector<ir::ValueId> root;    ///< for each value, the value that it is a view of, or itself
  std::vector<Location> locations;  ///< location of each value; empty if not packed
  std::map<std::string, ProgramInput, std::less<>> inputs;
  arena::Problem problem, host_problem;
  arena::Solution solution, host_solution;
  ArenaReport report;
  int64_t staging_bytes = 0;
  int64_t large_bytes = 0;  ///< size of the inputs worth staging ahead, at the front of the staging buffer
  int64_t scalar_bytes = 0;
  int num_host_nodes = 0;  ///< number of nodes that the host computes for the GPU

  int64_t arena_bytes() const { return report.height_bytes; }
  /// Returns the nodes of a step.
  std::span<const ir::Node> nodes_of(const Step& step) const {
    return {&graph.nodes[step.node], step.num_nodes};
  }
  /// True if steps exchange data with other workers.
  bool has_collectives() const;
  /// Returns the sum of the steps' seconds by the cost model.
  double seconds() const;
};

/// Returns the timeout in seconds for work that the cost model predicts to take `seconds`: 50 times as long,
/// because the GPU may be slower than the modeled one and kernels sometimes reach only a tenth of the modeled
/// speed.
double allowed_seconds(double seconds);

/// Prepares the kernels and packs the values. The layout must have the graph's weights and states.
Program compile(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options);

/// Returns the waits between the queues of a packed program.
Waits find_waits(const Program& program);

/// Returns the workspace bytes of a node's kernel.
int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options);

}  // namespace hearth::exec
