#pragma once

#include <array>
#include <chrono>
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

/// Runs a program: a loop over steps with fixed kernels and addresses. A run of a CPU program allocates
/// nothing and cannot fail; on a GPU it may throw DeviceError.
class Executor {
 public:
  /// Prepares to run the program, which must outlive the executor.
  explicit Executor(const Program& program);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Sets the addresses of weights and arena, and the queues. Call this before the first run.
  void bind(const Bindings& places);
  /// Sets the process group for collectives and, on the CPU, the queue in which they run. Call this before
  /// the first run.
  void connect(distributed::ProcessGroup& group, HostQueue* queue);
  /// Sets the address of an input, at which the bytes of its type and 64 more must be readable. May be
  /// changed between runs.
  void bind_input(std::string_view name, const void* data);
  /// Starts copying the large inputs that are bound now to the GPU for the next run, while the GPU is still
  /// computing. If an input is bound to another address afterwards, it is copied again. Does nothing on the
  /// CPU.
  void stage_ahead();
  bool has_input(std::string_view name) const { return program_.inputs.contains(name); }
  /// Returns an input by name, for bind_input(); kNone if the program does not have it.
  ir::ValueId input(std::string_view name) const;
  void bind_input(ir::ValueId input, const void* data);
  /// Sets a scalar input for the next run.
  void set_scalar(std::string_view name, float value);
  /// Runs the program and waits.
  void run(ThreadPool& threads);
  /// Starts a run. On return, inputs and scalars have been read; on a GPU the results are complete only after
  /// wait(). If every node has a GPU kernel, the second run is recorded and later runs replay the recording
  /// by one call. With RecordMode::automatic, replays 1, 2 and 50 and then one per hour are compared with
  /// queued execution, and recording is turned off unless they give the same bits.
  void start(ThreadPool& threads);
  /// Waits until the started run is complete.
  void wait();
  /// Copies a graph output to the caller's memory (page-locked, for a GPU). The copy is complete after
  /// wait().
  void read(ir::ValueId id, void* host);
  /// Runs the program one step at a time and calls `after(node index, seconds)` for each node. On a GPU,
  /// seconds are measured by its clock. If several nodes are one step, the first node gets the time of all.
  void run_with(ThreadPool& threads, FunctionRef<void(size_t, double)> after);

  /// Returns the address of a value on the host. Valid for graph outputs after a run; inside run_with() also
  /// for outputs of the current node. A value on a GPU is copied to the host, which waits for the GPU.
  const void* data(ir::ValueId id) const;
  const Program& program() const { return program_; }
  const ir::Graph& graph() const { return program_.graph; }
  /// True if the next run replays a recording.
  bool is_recorded() const { return recordings_[0] != nullptr && may_record(); }
  /// Returns the reason why the program can never be recorded; empty if there is none.
  std::string obstacle() const;

 private:
  /// A step of the program with the addresses of its inputs and outputs.
  struct Call {
    const Executor* executor = nullptr;
    const Step* step = nullptr;
    std::vector<void*> in, out;
    std::byte* workspace = nullptr;
    std::vector<size_t> waits;  ///< indices of the calls in other queues that must finish before this call
    /// On a GPU: event recorded after this call; null if no other call waits for it.
    std::unique_ptr<gpu::Event> done;
    int64_t num_added = 0;  ///< on the CPU: number of the call in the HostQueue, to wait for it
  };
  /// An input pointer of a call that must be changed when an input is bound to another address.
  struct Patch {
    size_t call;
    size_t input;
  };
  /// An input or scalar that is copied to a GPU through the staging buffer.
  struct Staged {
    int64_t offset = 0;
    int64_t num_bytes = 0;
    const void* from = nullptr;
    const void* sent_from = nullptr;  ///< address from which stage_ahead() has copied it
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
  /// Runs a collective. `call` is a Call*: streams and host queues take plain functions only.
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
  bool is_check_due(size_t half) const;
  void check_replay(ThreadPool& threads, size_t half);
  std::string replay_fault(size_t half);

  const Program& program_;
  std::vector<Call> calls_;
  std::vector<std::byte*> addresses_;  ///< address of each value of the program
  std::map<ir::ValueId, std::vector<Patch>> patches_;
  std::vector<std::byte> scalars_;
  distributed::ProcessGroup* group_ = nullptr;
  HostQueue* host_queue_ = nullptr;
  std::vector<size_t> last_waits_;  ///< calls that the compute queue waits for at the end of a run

  // For Backend::gpu only.
  Bindings bindings_;
  std::vector<gpu::Stream*> forked_;  ///< the other queues that have work in this program
  std::unique_ptr<gpu::Event> begun_;
  /// The recording for each half of the staging buffer; null until recorded.
  std::array<std::unique_ptr<gpu::Recording>, 2> recordings_;
  std::array<int64_t, 2> num_replays_ = {};  ///< of each recording
  bool can_record_;
  std::string key_;                     ///< names the program for the recorder
  std::unique_ptr<ReplayCheck> check_;  ///< only during check_replay(); otherwise null
  /// Time of the next hourly comparison of a replay with the queued step.
  std::chrono::steady_clock::time_point next_check_ = std::chrono::steady_clock::time_point::max();
  double wait_seconds_;  ///< timeout for waiting on other workers, in seconds
  int64_t num_runs_ = 0;
  int64_t staged_fill_ = -1;  ///< Staging::num_fills() after stage_ahead(); -1: no inputs are staged ahead
  std::map<ir::ValueId, Staged> staged_;
  /// Copies of values that data() has returned.
  mutable std::map<ir::ValueId, std::vector<std::byte>> copies_;
};

}  // namespace hearth::exec
