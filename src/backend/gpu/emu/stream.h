#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/blas.h"
#include "backend/gpu/emu/grid.h"
#include "backend/gpu/wait_timeout.h"

namespace hearth::emu {

/// Properties of an emulated GPU, and the faults it injects.
struct GpuSettings {
  int64_t memory_bytes = int64_t{20} << 30;
  double link_bytes_per_second = 0;  ///< rate of copies to and from the host; 0: unlimited
  /// Index of the allocation that fails, counted from 0 since the GPU was opened; -1: none. The next two
  /// members are indices of launches that fail or hang.
  int64_t refused_allocation = -1;
  int64_t faulty_launch = -1;
  bool no_code = false;  ///< true if every launch fails for lack of code for this GPU
  int64_t hanging_launch = -1;
  double hang_scale = 1;  ///< fraction of its timeout after which a wait for the hanging GPU ends
  bool cannot_record = false;
  bool hangs_while_recording = false;  ///< true if recording never ends
  bool integrated = false;             ///< true if the GPU reports that it shares the processor's memory
  bool has_display = false;
  /// Index of the node that replays of a recording omit; -1: none.
  int64_t lost_node = -1;
  int64_t num_right_replays = 0;  ///< number of replays of each recording before the node is lost
  int64_t failing_replay = -1;    ///< index of the replay of each recording that fails; -1: none
  /// True if event times count a microsecond per launched thread instead of real time (one thread for a
  /// library's matmul), so that autotuning always picks the same variant.
  bool counts_threads = false;
  /// Path of a file: every launch fails while it exists. Empty: none.
  std::string broken_while;
  /// Behavior of the GPU's BLAS library; none: there is no library.
  enum class Library : uint8_t { none, right, wrong, failing, fatal } library = Library::none;
  int library_version = 1;
  /// Time of each algorithm that the library recommends, in threads (counts_threads). Each algorithm adds
  /// terms in a different order. Empty: the library lists no algorithms.
  std::vector<int64_t> algorithm_threads = {};
  /// Seed of the random execution order of streams. 0: work runs only when a host waits for it.
  uint64_t order_seed = 0;
};
/// Parses a list like "20GiB,24GiB" (one GPU per size) or "20GiB,24GiB,library" (both with a BLAS). Faults
/// follow a size after semicolons: "20GiB;link=6GB" limits the rate of copies to and from the host;
/// "fault=500" and "hang=500" name a launch, "refuse=2" an allocation, "lose=5" a node of every recording,
/// counted from 0 in each process that opens the GPU; "broken=FILE" fails every launch while the file exists;
/// "integrated" shares the processor's memory. Throws UserError on any other text.
std::vector<GpuSettings> gpus_of(std::string_view sizes);
/// Returns the emulated GPUs of this process, as set by HEARTH_EMULATED; by default one. May be changed while
/// no GPU is open.
std::vector<GpuSettings>& gpus();

class Stream;

/// State shared by the streams of an open GPU.
struct Gpu {
  GpuSettings settings;
  int64_t used_bytes = 0;
  int64_t num_allocations = 0;
  int64_t num_launches = 0;
  int64_t num_threads = 0;  ///< total number of threads of all launches so far
  bool hangs = false;
  gpu::WaitTimeout wait_timeout = {};
  std::vector<Stream*> streams = {};
  /// The distinct matmuls for which the library has done its setup.
  std::set<gpu::BlasMatmul> matmuls = {};
  uint32_t num_choices = 0;
};

/// A recording: the calls of every stream that took part, in replay order.
struct Recording {
  std::vector<std::function<void()>> calls;
  int64_t num_nodes = 0;
  int64_t num_replays = 0;
  bool open = true;
};

/// Position of a stream when an event was recorded.
struct Mark {
  Stream* stream = nullptr;
  uint64_t end = 0;
  std::chrono::steady_clock::time_point passed;
  std::weak_ptr<Recording> recording;
};

/// A stream that runs work as late as possible, when a host waits for it. This exposes programs that read a
/// result, or overwrite an input, without waiting.
class Stream {
 public:
  explicit Stream(Gpu& gpu) : gpu_(gpu) { gpu.streams.push_back(this); }
  ~Stream() { std::erase(gpu_.streams, this); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  using Work = std::function<void()>;

  /// Queues work, or adds it to the recording.
  void enqueue(Work work);
  /// Queues a kernel; the launch fails or hangs if GpuSettings requests this.
  void launch(const Grid& grid, std::function<void()> kernel);
  /// Returns a mark of the current end of the queue.
  std::shared_ptr<Mark> record();
  /// Waits for a mark. If the marked stream is being recorded, this stream joins the recording.
  void wait(std::shared_ptr<Mark> mark);
  void start_recording() { recording_ = std::make_shared<Recording>(); }
  std::shared_ptr<Recording> finish_recording();
  /// Runs the queued work before index `end`. Throws Fault if a kernel fails; the GPU then hangs.
  void run_until(uint64_t end);
  void run_all() { run_until(end()); }
  Gpu& gpu() { return gpu_; }
  bool records() const { return recording_ && recording_->open; }

 private:
  /// Index that the next queued piece of work will have.
  uint64_t end() const { return first_ + queue_.size(); }
  void set(const std::shared_ptr<Mark>& mark);
  std::chrono::steady_clock::time_point now() const;
  void wait_until(Stream* stream, uint64_t end);
  void run_random_stream();

  Gpu& gpu_;
  std::deque<Work> queue_;
  std::shared_ptr<Recording> recording_;
  uint64_t first_ = 0;
};

}  // namespace hearth::emu
