#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/threads.h"
#include "exec/memory.h"
#include "ir/op_def.h"
#include "passes/storage.h"
#include "plan/problem.h"

namespace hearth::exec {

enum class Backend : uint8_t { cpu, null };

struct CompileOptions {
  Backend backend = Backend::cpu;
  int num_threads = 1;
  /// Values whose bytes count as gradients in the memory report.
  std::vector<ir::ValueId> gradients;
  /// Most steps of the packer's exact search: a few tenths of a second. Steps, not seconds, so that a
  /// plan does not depend on the machine.
  int64_t plan_steps = 40'000'000;
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

/// A compiled graph: a flat list of prepared kernels with every pointer decided. Compiled once per shape, run
/// many times; running allocates nothing and cannot fail. Not copyable; owns its graph.
class Program {
 public:
  Program(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options);

  /// Fixes the addresses of weights and of the arena; before the first run. `arena` holds at least
  /// arena_bytes(), `host` report().host_bytes.
  void bind(std::byte* persistent, std::byte* arena, std::byte* host = nullptr);
  /// Points an input at the caller's bytes (its type's size plus 64 bytes of readable slack). May change
  /// between runs.
  void bind_input(std::string_view name, const void* data);
  bool has_input(std::string_view name) const { return inputs_.find(name) != inputs_.end(); }
  /// Sets a scalar input for the next run.
  void set_scalar(std::string_view name, float value);
  void run(ThreadPool& threads);
  /// Runs one node at a time and calls `after(node index)` behind each.
  void run_with(ThreadPool& threads, FunctionRef<void(size_t)> after);

  /// Bytes of a value: valid for graph outputs after a run, and inside run_with for outputs of the node just
  /// run.
  const void* data(ir::ValueId id) const { return pointers_[static_cast<size_t>(id)]; }
  const ir::Graph& graph() const { return graph_; }
  int64_t arena_bytes() const { return report_.height_bytes; }
  const ArenaReport& report() const { return report_; }
  const plan::Problem& plan_problem() const { return problem_; }
  const plan::Solution& plan_solution() const { return solution_; }

 private:
  struct Step {
    ir::Kernel kernel;
    std::vector<void*> in;
    std::vector<void*> out;
    std::byte* workspace = nullptr;
    size_t node = 0;
    int64_t workspace_buffer = -1;
  };
  /// Where a pointer must be patched when an input is bound.
  struct Patch {
    size_t step;
    size_t input;
  };

  /// Where a storage lies: a buffer of problem_ or of host_problem_.
  struct Place {
    bool on_host = false;
    size_t buffer = 0;
  };

  void prepare(const CompileOptions& options);
  void plan(const CompileOptions& options);
  void summarise();
  void add_storages(const passes::StorageMap& map, const CompileOptions& options);
  void resolve_pointer(ir::ValueId id, std::byte* persistent, std::byte* arena, std::byte* host);

  ir::Graph graph_;
  const PersistentLayout& layout_;
  std::vector<Step> steps_;
  std::vector<int> storage_of_value_;
  std::vector<ir::ValueId> root_;
  std::vector<Place> places_;
  plan::Problem problem_;
  plan::Solution solution_;
  plan::Problem host_problem_;
  plan::Solution host_solution_;
  ArenaReport report_;
  std::vector<void*> pointers_;
  std::map<std::string, ir::ValueId, std::less<>> inputs_;
  std::vector<std::vector<Patch>> patches_;
  /// One 64-byte line per scalar input.
  std::vector<std::array<float, 16>> scalars_;
  std::vector<int> scalar_of_value_;
};

/// Workspace bytes of a node's CPU kernel (prepared and thrown away; equal nodes are prepared once).
int64_t cpu_workspace_bytes(const ir::Graph& graph, const ir::Node& node, int num_threads);

}  // namespace hearth::exec
