#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arena/problem.h"
#include "arena/solve.h"
#include "base/threads.h"
#include "exec/memory.h"
#include "exec/waits.h"
#include "ir/graph.h"
#include "passes/memory/storage.h"

namespace hearth::distributed {
class ProcessGroup;
}
namespace hearth::gpu {
class Event;
class Recording;
class Stream;
}  // namespace hearth::gpu

namespace hearth::exec {

class HostQueue;
class HostScratch;
class Staging;

enum class Backend : uint8_t { cpu, gpu, null };

struct CompileOptions {
  Backend backend = Backend::cpu;
  int num_threads = 1;
  /// Values whose bytes count as gradients in the memory report.
  std::vector<ir::ValueId> gradients;
  /// Of Backend::gpu: whether the GPU's kernel may be used; null: every one.
  std::function<bool(const ir::OpDef&, const ir::NodeView&)> trusts;
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

/// Where a program's values lie. With Backend::gpu the first two are a GPU's.
struct Places {
  std::byte* persistent = nullptr;
  std::byte* arena = nullptr;  ///< arena_bytes()
  std::byte* host = nullptr;   ///< report().host_bytes

  // Backend::gpu only.
  std::byte* host_persistent = nullptr;  ///< weights and states of the layout that are on the host
  Staging* staging = nullptr;            ///< halves of staging_bytes(): inputs and scalars
  std::array<gpu::Stream*, kNumQueues> queues = {};
};

/// A step as a GPU is given it, for a model of one (exec/replay.h).
struct PlannedStep {
  std::span<const ir::Node> nodes;  ///< that its kernel takes together
  Queue queue = Queue::compute;
  std::vector<size_t> waits;  ///< earlier steps of other queues
};

/// A compiled graph: a flat list of prepared kernels with every pointer decided. Compiled once per shape, run
/// many times; running allocates nothing and cannot fail. Not copyable; owns its graph.
class Program {
 public:
  Program(ir::Graph graph, const PersistentLayout& layout, const CompileOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Fixes the addresses of weights and of the arena; before the first run.
  void bind(const Places& places);
  /// What its collectives go by, and on the processor the queue that they run in; before the first run.
  void connect(distributed::ProcessGroup& group, HostQueue* queue);
  bool has_collectives() const { return !host_calls_.empty() || meets_on_gpu_; }
  /// Points an input at the caller's bytes (its type's size plus 64 bytes of readable slack). May change
  /// between runs.
  void bind_input(std::string_view name, const void* data);
  /// Sends large inputs that are bound ahead of the next run, which may be bound to others still. For a GPU
  /// that is computing; elsewhere it does nothing.
  void stage_ahead();
  bool has_input(std::string_view name) const { return inputs_.find(name) != inputs_.end(); }
  /// Sets a scalar input for the next run.
  void set_scalar(std::string_view name, float value);
  void run(ThreadPool& threads);
  /// The same, but a GPU may be at it still: inputs and scalars are taken already, everything else is there
  /// after wait(). Where every node has a kernel for GPUs, the work of the second run is recorded and then
  /// queued by one call.
  void start(ThreadPool& threads);
  void wait();
  /// Copies a graph output to the caller's memory (page-locked, for a GPU); done after wait().
  void read(ir::ValueId id, void* host);
  /// Runs one node at a time and calls `after(node index)` after each.
  void run_with(ThreadPool& threads, FunctionRef<void(size_t)> after);

  /// Bytes of a value, on the host: valid for graph outputs after a run, and inside run_with for outputs of
  /// the node just run; from a GPU they are copied here, which waits for it.
  const void* data(ir::ValueId id) const;
  const ir::Graph& graph() const { return graph_; }
  int64_t arena_bytes() const { return report_.height_bytes; }
  int64_t staging_bytes() const { return staging_bytes_; }
  /// Whether runs are queued by one call.
  bool is_recorded() const { return recordings_[0] != nullptr; }
  /// Nodes that the host computes for the GPU.
  int num_host_nodes() const { return num_host_nodes_; }
  const ArenaReport& report() const { return report_; }
  const arena::Problem& plan_problem() const { return problem_; }
  const arena::Solution& plan_solution() const { return solution_; }
  /// Every step in its order; not bound, but packed. The program outlives them.
  std::vector<PlannedStep> planned_steps() const;

 private:
  struct Step {
    ir::Kernel kernel;
    std::vector<void*> in;
    std::vector<void*> out;
    std::byte* workspace = nullptr;
    size_t node = 0;
    size_t num_nodes = 1;  ///< that the kernel takes together
    int64_t workspace_buffer = -1;
    Queue queue = Queue::compute;
    std::vector<size_t> waits;         ///< steps of other queues
    std::unique_ptr<gpu::Event> done;  ///< where one waits for this step, on a GPU ...
    int64_t num_added = 0;             ///< ... and on the processor: HostQueue::add of this run
    int64_t host_call = -1;            ///< of a collective: its place in host_calls_
  };
  /// A collective for a queue that knows plain functions alone.
  struct HostCall {
    const Program* program;
    size_t step;
    static void make(void* call);
  };
  /// Where a pointer must be patched when an input is bound.
  struct Patch {
    size_t step;
    size_t input;
  };

  /// An input or scalar on its way to a GPU.
  struct Staged {
    int64_t offset = 0;
    const void* from = nullptr;
    const void* sent_from = nullptr;  ///< ahead
  };

  /// Where a storage lies: a buffer of problem_ or of host_problem_.
  struct Place {
    bool on_host = false;
    size_t buffer = 0;
  };

  void prepare(const CompileOptions& options);
  void plan(const CompileOptions& options);
  void summarize();
  void add_storages(const passes::StorageMap& map, const CompileOptions& options);
  /// Whether the node has a kernel for GPUs that may be used.
  bool runs_on_gpu(const ir::Node& node, const CompileOptions& options) const;
  /// How many nodes from number `first` on are one step.
  size_t num_at_once(size_t first, const CompileOptions& options) const;
  ir::Kernel prepare_kernel(size_t first, size_t num_nodes, const CompileOptions& options);
  std::span<const ir::Node> nodes_of(const Step& step) const {
    return {&graph_.nodes[step.node], step.num_nodes};
  }
  void resolve_pointer(ir::ValueId id, const Places& places);
  std::byte* persistent_place(const ir::Value& value, const Places& places) const;
  void order_queues();
  std::optional<int64_t> address_of(ir::ValueId id) const;
  QueuedStep accesses_of(const Step& step) const;
  Waits find_waits() const;
  void keep_together(const Step& step);
  void bind_step_input(size_t step, size_t k, ir::ValueId id);
  void point_at(ir::ValueId root, void* place);
  gpu::Stream* queue(Queue which) const { return queues_[static_cast<size_t>(which)]; }
  bool is_on_host(ir::ValueId id) const;
  bool is_large(const Staged& staged) const { return staged.offset < large_bytes_; }
  void add_staged(bool large);
  void stage(const Staged& staged, ir::ValueId id, std::byte* host) const;
  bool is_ahead() const;
  size_t stage_inputs();
  void wait_for(const Step& step, gpu::Stream* waiting);
  void run_step(Step& step, ThreadPool& threads);
  void exchange(Step& step);
  void fork();
  void join();
  void queue_steps(ThreadPool& threads);
  void record(ThreadPool& threads, size_t half);

  ir::Graph graph_;
  const PersistentLayout& layout_;
  std::vector<Step> steps_;
  std::vector<int> storage_of_value_;
  std::vector<ir::ValueId> root_;
  std::vector<Place> places_;
  arena::Problem problem_;
  arena::Solution solution_;
  arena::Problem host_problem_;
  arena::Solution host_solution_;
  ArenaReport report_;
  std::vector<void*> pointers_;
  std::map<std::string, ir::ValueId, std::less<>> inputs_;
  std::vector<std::vector<Patch>> patches_;
  /// One 64-byte line per scalar input.
  std::vector<std::array<float, 16>> scalars_;
  std::vector<int> scalar_of_value_;

  std::vector<HostCall> host_calls_;  ///< of each collective, in order
  distributed::ProcessGroup* group_ = nullptr;
  HostQueue* host_queue_ = nullptr;
  std::vector<size_t> last_waits_;  ///< of Queue::compute, after the last step

  // Backend::gpu only.
  Staging* staging_ = nullptr;
  std::array<gpu::Stream*, kNumQueues> queues_ = {};
  std::vector<gpu::Stream*> forked_;  ///< queues of copies that have some to do
  std::unique_ptr<gpu::Event> begun_;
  /// One for each half of the staging.
  std::array<std::unique_ptr<gpu::Recording>, 2> recordings_;
  bool may_record_ = true;
  bool meets_on_gpu_ = false;
  int64_t num_runs_ = 0;
  int64_t staging_bytes_ = 0;
  int64_t large_bytes_ = 0;  ///< at the front of them: inputs worth sending ahead
  int64_t ahead_ = -1;       ///< which filling of the staging holds them
  int num_host_nodes_ = 0;
  std::map<ir::ValueId, Staged> staged_;
  std::shared_ptr<HostScratch> scratch_;
  mutable std::map<ir::ValueId, std::vector<std::byte>> copies_;  ///< what data() gave out
};

/// Workspace bytes of a node's kernel, which is prepared and thrown away.
int64_t workspace_bytes(const ir::Graph& graph, const ir::Node& node, const CompileOptions& options);

}  // namespace hearth::exec
