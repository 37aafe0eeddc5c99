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

/// Device that a program is compiled for. null: kernels that touch no memory, to compute plans.
enum class Backend : uint8_t { cpu, gpu, null };

/// Options of compile().
struct CompileOptions {
  Backend backend = Backend::cpu;
  const gpu::Driver* driver = nullptr;  ///< driver of the kernels, for Backend::gpu
  int num_threads = 1;
  bool winograd = true;  ///< true if convolutions on the CPU may use Winograd's algorithm
  /// Values whose bytes count as gradients in the memory report.
  std::vector<ir::ValueId> gradients;
  /// For Backend::gpu: returns true if the GPU kernel may be used for a node; null: all may be used.
  std::function<bool(const ir::OpDef&, const ir::NodeView&)> trusts;
  /// Device whose rates the cost model uses.
  cost::Device device;
  /// False to skip packing: values get no offsets, and the height of the arena is its lower bound.
  bool pack = true;
};

/// Bytes of the arena at the memory peak by purpose, the packed height of the arena and its lower bound.
struct ArenaReport {
  int64_t activation_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t height_bytes = 0;
  int64_t bound_bytes = 0;
  int64_t host_bytes = 0;  ///< size of offloaded activations in host memory, which are not in the arena
  double flops = 0;
};

/// A kernel call, which executes `num_nodes` nodes from index `node` on.
struct Step {
  ir::Kernel kernel;
  size_t node = 0;
  size_t num_nodes = 1;
  int64_t workspace_buffer = -1;  ///< index of the workspace in Program::problem; -1: none
  Queue queue = Queue::compute;
  bool on_host = false;  ///< true for a collective that runs on the host
  double seconds = 0;    ///< time predicted by the cost model for CompileOptions::device
};

/// Memory region and offset of a value. Executor::bind() sets the addresses of the regions.
struct Location {
  enum class In : uint8_t {
    none,
    arena,
    host_arena,
    weights,       ///< weights and states, in the memory of the device that computes
    host_weights,  ///< GPU programs only: weights and states that stay in host memory
    staging,       ///< GPU programs only: inputs and scalars, in the staging buffer
    scalars,       ///< CPU programs only: scalars, 64 bytes each
    caller,        ///< an input, at the address that the caller binds
  };
  In in = In::none;
  int64_t offset = 0;
};

/// An input or scalar of a program.
struct ProgramInput {
  ir::ValueId id = ir::kNone;
  int64_t scalar_offset = -1;   ///< offset in the executor's scalar memory; -1: not a scalar
  int64_t staging_offset = -1;  ///< offset in each half of the staging buffer; for GPU programs only
};

/// A compiled graph: a list of prepared kernels, and a location for every value. It contains data only and
/// needs no device; an Executor runs it.
struct Program {
  ir::Graph graph;
  Backend backend = Backend::cpu;
  std::vector<Step> steps;
  std::vector<ir::ValueId> root;    ///< for each value, the value of which it is a view; otherwise itself
  std::vector<Location> locations;  ///< for each value, its location; empty if not packed
  std::map<std::string, ProgramInput, std::less<>> inputs;
  arena::Problem problem, host_problem;
  arena::Solution solution, host_solution;
  ArenaReport report;
  int64_t staging_bytes = 0;
  int64_t large_bytes =
      0;  ///< size of the inputs that are staged ahead; they are first in the staging buffer
  int64_t scalar_bytes = 0;
  int num_host_nodes = 0;  ///< number of nodes of a GPU program that run on the host

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

/// Returns the timeout in seconds for work that the cost model predicts to take `seconds`: 50 times that,
/// because the GPU may be slower than the modeled one, and some kernels reach only a tenth of the modeled
/// speed.
double allowed_seconds(double seconds);

/// Compiles a graph: prepares its kernels and assigns offsets to its values. The layout must contain the
/// graph's weights and states.
Program compile(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options);

/// Returns the waits that order the steps of different queues of a packed program.
Waits find_waits(const Program& program);

/// Returns the number of workspace bytes that the kernel of a node needs.
int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options);

}  // namespace hearth::exec
