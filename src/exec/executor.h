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

/// Runs a program: a loop over steps with fixed kernels and addresses. The program must outlive the executor.
/// Running a CPU program allocates nothing and cannot fail; on a GPU it may throw DeviceError.
class Executor {
 public:
  /// Prepares to run the program, which must outlive the executor.
  explicit Executor(const Program& program);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Sets the addresses of weights, arena and queues. Call before the first run.
  void bind(const Bindings& places);
  /// Sets the process group for collectives and, on the CPU, the queue they run in. Call before the first
  /// run.
  void connect(distributed::ProcessGroup& group, HostQueue* queue);
  /// Points an input at the caller's bytes: the size of its type plus 64 readable bytes. May change between
  /// runs.
  void bind_input(std::string_view name, const void* data);
  /// Starts copying the bound large inputs to the GPU for the next run, while the GPU computes; inputs may
  /// still be rebound. Does nothing on the CPU.
  void stage_ahead();
  bool has_input(std::string_view name) const { return program_.inputs.contains(name); }
  /// Returns an input by name, for bind_input(); kNone if the program does not have it.
  ir::ValueId input(std::string_view name) const;
  void bind_input(ir::ValueId input, const void* data);
  /// Sets a scalar input for the next run.
  void set_scalar(std::string_view name, float value);
  /// Runs the program and waits.
  void run(ThreadPool& threads);
  /// Starts a run, which a GPU may finish later: on return it has read inputs and scalars, and its results
  /// are complete after wait(). If every node has a GPU kernel, the second run is recorded and later runs
  /// replay the recording by one call; with RecordMode::automatic only after the first replay has given the
  /// same bits as queued execution.
  void start(ThreadPool& threads);
  /// Waits until the started run is complete.
  void wait();
  /// Copies a graph output to the caller's memory (page-locked, for a GPU); done after wait().
  void read(ir::ValueId id, void* host);
  /// Runs one step at a time and calls `after(node index, seconds)` for each node; seconds are measured by
  /// the GPU's clock for GPU steps. If several nodes are one step, the first one gets all of its time.
  void run_with(ThreadPool& threads, FunctionRef<void(size_t, double)> after);

  /// Returns the bytes of a value on the host: valid for graph outputs after a run, and inside run_with for
  /// outputs of the node just run. Values on a GPU are copied to the host, which waits for the GPU.
  const void* data(ir::ValueId id) const;
  const Program& program() const { return program_; }
  const ir::Graph& graph() const { return program_.graph; }
  /// True if runs are replayed from a recording.
  bool is_recorded() const { return recordings_[0] != nullptr && may_record(); }
  /// Returns the reason why the program can never be recorded; empty if there is none.
  std::string obstacle() const;

 private:
  /// A step with its addresses.
  struct Call {
    const Executor* executor = nullptr;
    const Step* step = nullptr;
    std::vector<void*> in, out;
    std::byte* workspace = nullptr;
    std::vector<size_t> waits;         ///< indices of calls in other queues that must finish first
    std::unique_ptr<gpu::Event> done;  ///< on a GPU: recorded after this call if another call waits for it
    int64_t num_added = 0;             ///< on the CPU: result of HostQueue::add in this run
  };
  /// An input pointer of a call to update when an input is bound.
  struct Patch {
    size_t call;
    size_t input;
  };
  /// An input or scalar that is copied to a GPU through the staging buffer.
  struct Staged {
    int64_t offset = 0;
    int64_t num_bytes = 0;
    const void* from = nullptr;
    const void* sent_from = nullptr;  ///< source of the copy that stage_ahead made
    void copy_to(std::byte* host) const;
  };

  std::byte* address_of(const Location& location, const Bindings& places);
  void bind_call(size_t call, const Bindings& places);
  void order_queues();
  void set_input_pointers(ir::ValueId root, void* place);
  gpu::Stream* queue(Queue which) const { return bindings_.queues[static_cast<size_t>(which)]; }
  bool is_on_gpu() const { return bindings_.staging != nullptr; }
  bool is_large(const Staged& staged) const { return staged.offset < program_.large_bytes; }
  bool has_staged_inputs() const;
  size_t stage_inputs();
  void wait_for(const Call& call, gpu::Stream* waiting);
  void run_call(Call& call, ThreadPool& threads);
  void exchange(Call& call);
  /// Runs a collective (a Call); a plain function for stream and host queues.
  static void run_collective(void* call);
  void fork();
  void join();
  void queue_calls(ThreadPool& threads);
  bool may_record() const;
  void queue_run(ThreadPool& threads, size_t half);
  void record(ThreadPool& threads, size_t half);
  void allow(double seconds);
  void replay(size_t half);
  void disable_recording(std::string fault);
  void check_replay(ThreadPool& threads, size_t half);
  std::string replay_fault(size_t half);

  const Program& program_;
  std::vector<Call> calls_;
  std::vector<std::byte*> addresses_;  ///< address of each value
  std::map<ir::ValueId, std::vector<Patch>> patches_;
  std::vector<std::byte> scalars_;
  distributed::ProcessGroup* group_ = nullptr;
  HostQueue* host_queue_ = nullptr;
  std::vector<size_t> last_waits_;  ///< calls that Queue::compute waits for at the end of a run

  // Backend::gpu only.
  Bindings bindings_;
  std::vector<gpu::Stream*> forked_;  ///< queues other than compute that have work
  std::unique_ptr<gpu::Event> begun_;
  /// One recording for each half of the staging.
  std::array<std::unique_ptr<gpu::Recording>, 2> recordings_;
  bool can_record_;
  std::unique_ptr<ReplayCheck> check_;  ///< set during the check of the first replay
  double wait_seconds_;                 ///< timeout for other workers
  int64_t num_runs_ = 0;
  int64_t staged_fill_ = -1;  ///< Staging::num_fills() of the large inputs staged ahead; -1: none
  std::map<ir::ValueId, Staged> staged_;
  mutable std::map<ir::ValueId, std::vector<std::byte>> copies_;  ///< values that data() returned
};

}  // namespace hearth::exec
