#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/threads.h"
#include "exec/places.h"
#include "exec/program.h"

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
class ReplayCheck;
class Staging;

/// Runs a program, which outlives it: a loop over steps whose every pointer is decided. Running allocates
/// nothing and cannot fail.
class Executor {
 public:
  explicit Executor(const Program& program);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Fixes the addresses of weights and of the arena; before the first run.
  void bind(const Places& places);
  /// What its collectives go by, and on the processor the queue that they run in; before the first run.
  void connect(distributed::ProcessGroup& group, HostQueue* queue);
  /// Points an input at the caller's bytes (its type's size plus 64 bytes of readable slack). May change
  /// between runs.
  void bind_input(std::string_view name, const void* data);
  /// Sends large inputs that are bound ahead of the next run, which may be bound to others still. For a GPU
  /// that is computing; elsewhere it does nothing.
  void stage_ahead();
  bool has_input(std::string_view name) const { return program_.inputs.contains(name); }
  /// Returns an input by name, for bind_input(); kNone if the program does not have it.
  ir::ValueId input(std::string_view name) const;
  void bind_input(ir::ValueId input, const void* data);
  /// Sets a scalar input for the next run.
  void set_scalar(std::string_view name, float value);
  void run(ThreadPool& threads);
  /// Starts a run, which a GPU may finish later: on return it has read inputs and scalars, and its results
  /// are complete after wait(). If every node has a GPU kernel, the second run is recorded and later runs
  /// replay the recording by one call; with RecordMode::automatic only after the first replay has given the
  /// same bits as queued execution.
  void start(ThreadPool& threads);
  void wait();
  /// Copies a graph output to the caller's memory (page-locked, for a GPU); done after wait().
  void read(ir::ValueId id, void* host);
  /// Runs one node at a time and calls `after(node index, seconds)` after each: what it took, by the GPU's
  /// clock where a GPU did it. Of nodes that are done by one call the first has all of it.
  void run_with(ThreadPool& threads, FunctionRef<void(size_t, double)> after);

  /// Bytes of a value, on the host: valid for graph outputs after a run, and inside run_with for outputs of
  /// the node just run; from a GPU they are copied here, which waits for it.
  const void* data(ir::ValueId id) const;
  const Program& program() const { return program_; }
  const ir::Graph& graph() const { return program_.graph; }
  /// Whether runs are queued by one call.
  bool is_recorded() const { return recordings_[0] != nullptr && may_record(); }
  /// Why its work can never be recorded; empty where nothing is known against it.
  std::string obstacle() const;

 private:
  /// A step with its addresses.
  struct Call {
    const Executor* executor = nullptr;
    const Step* step = nullptr;
    std::vector<void*> in, out;
    std::byte* workspace = nullptr;
    std::vector<size_t> waits;         ///< calls of other queues
    std::unique_ptr<gpu::Event> done;  ///< where one waits for this call, on a GPU ...
    int64_t num_added = 0;             ///< ... and on the processor: HostQueue::add of this run
  };
  /// Where a pointer must be patched when an input is bound.
  struct Patch {
    size_t call;
    size_t input;
  };
  /// An input or scalar on its way to a GPU.
  struct Staged {
    int64_t offset = 0;
    int64_t num_bytes = 0;
    const void* from = nullptr;
    const void* sent_from = nullptr;  ///< ahead
    void copy_to(std::byte* host) const;
  };

  std::byte* address_of(const Location& location, const Places& places);
  void bind_call(size_t call, const Places& places);
  void order_queues();
  void point_at(ir::ValueId root, void* place);
  gpu::Stream* queue(Queue which) const { return places_.queues[static_cast<size_t>(which)]; }
  bool is_on_gpu() const { return places_.staging != nullptr; }
  bool is_large(const Staged& staged) const { return staged.offset < program_.large_bytes; }
  bool is_ahead() const;
  size_t stage_inputs();
  void wait_for(const Call& call, gpu::Stream* waiting);
  void run_call(Call& call, ThreadPool& threads);
  void exchange(Call& call);
  /// A collective, for a queue that knows plain functions alone.
  static void make(void* call);
  void fork();
  void join();
  void queue_calls(ThreadPool& threads);
  bool may_record() const;
  void queue_run(ThreadPool& threads, size_t half);
  void record(ThreadPool& threads, size_t half);
  void allow(double seconds);
  void replay(size_t half);
  void leave_off(std::string fault);
  void check_replay(ThreadPool& threads, size_t half);
  std::string replay_fault(size_t half);

  const Program& program_;
  std::vector<Call> calls_;
  std::vector<std::byte*> addresses_;  ///< of each value
  std::map<ir::ValueId, std::vector<Patch>> patches_;
  std::vector<std::byte> scalars_;
  distributed::ProcessGroup* group_ = nullptr;
  HostQueue* host_queue_ = nullptr;
  std::vector<size_t> last_waits_;  ///< of Queue::compute, after the last call

  // Backend::gpu only.
  Places places_;
  std::vector<gpu::Stream*> forked_;  ///< queues of copies that have some to do
  std::unique_ptr<gpu::Event> begun_;
  /// One for each half of the staging.
  std::array<std::unique_ptr<gpu::Recording>, 2> recordings_;
  bool can_record_;
  std::unique_ptr<ReplayCheck> check_;  ///< while one goes on
  double wait_seconds_;                 ///< for other workers
  int64_t num_runs_ = 0;
  int64_t ahead_ = -1;  ///< which filling of the staging holds large inputs
  std::map<ir::ValueId, Staged> staged_;
  mutable std::map<ir::ValueId, std::vector<std::byte>> copies_;  ///< what data() gave out
};

}  // namespace hearth::exec
