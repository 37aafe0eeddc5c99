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
#include "backend/gpu/patience.h"

namespace hearth::emu {

/// A virtual GPU, and what goes wrong with it.
struct GpuSettings {
  int64_t memory_bytes = int64_t{20} << 30;
  double link_bytes_per_second = 0;  ///< of copies from and to the host; 0: as fast as they go
  /// Counted from 0 over the GPU's life; -1: never.
  int64_t refused_allocation = -1;
  int64_t faulty_launch = -1;
  int64_t hanging_launch = -1;
  double hang_scale = 1;  ///< the share of its deadline that a wait for a GPU that hangs takes
  bool cannot_record = false;
  bool integrated = false;  ///< says that it shares the processor's memory
  /// Of everything that a recording is given: missing from its replays; -1: none.
  int64_t lost_node = -1;
  /// Events tell a microsecond for each thread launched in place of the time that passed, so that which of
  /// several ways is fastest is always the same: a library's matmul counts as one thread.
  bool counts_threads = false;
  /// Every launch fails while there is such a file; empty: none.
  std::string broken_while;
  /// Its library of matmuls, if it has one.
  enum class Library : uint8_t { none, right, wrong, failing, fatal } library = Library::none;
  /// 0: work is done when somebody waits for it. Else it seeds which stream gets ahead, and when.
  uint64_t order_seed = 0;
};
/// One GPU for each size of a list like "20GiB,24GiB", or "20GiB,24GiB,library", where both have a library
/// of matmuls. A size may bring troubles, each after a semicolon: "20GiB;link=6GB" copies to and
/// from the host at so many bytes per second; "fault=500" and "hang=500" are of that launch, "refuse=2" of
/// that allocation, "lose=5" of that node of every recording, counted from 0 in every process that opens the
/// GPU; "broken=FILE" lets every launch fail while there is such a file; "integrated" shares the processor's
/// memory. UserError for what is no such list.
std::vector<GpuSettings> gpus_of(std::string_view sizes);
/// The GPUs of this process: those of the environment's HEARTH_EMULATED, or one; changed while none is open.
std::vector<GpuSettings>& gpus();

class Stream;

/// What is common to the streams of an open GPU.
struct Gpu {
  GpuSettings settings;
  int64_t used_bytes = 0;
  int64_t num_allocations = 0;
  int64_t num_launches = 0;
  int64_t num_threads = 0;  ///< of all launches
  bool hangs = false;
  gpu::Patience patience = {};
  std::vector<Stream*> streams = {};
  /// What the library has been asked.
  std::set<gpu::BlasMatmul> matmuls = {};
  uint32_t num_choices = 0;
};

/// Calls that a replay makes again, those of every stream that took part.
struct Recording {
  std::vector<std::function<void()>> calls;
  int64_t num_nodes = 0;
  bool open = true;
};

/// Where a stream was when an event was recorded.
struct Mark {
  Stream* stream = nullptr;
  uint64_t end = 0;
  std::chrono::steady_clock::time_point passed;
  std::weak_ptr<Recording> recording;
};

/// Work in order, done as late as may be: when somebody waits for it. A host that reads a result, or writes
/// over an input, without waiting is found out that way.
class Stream {
 public:
  explicit Stream(Gpu& gpu) : gpu_(gpu) { gpu.streams.push_back(this); }
  ~Stream() { std::erase(gpu_.streams, this); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  using Work = std::function<void()>;

  void enqueue(Work work);
  void launch(const Grid& grid, std::function<void()> kernel);
  std::shared_ptr<Mark> record();
  /// A stream that waits for one that is being recorded is recorded with it.
  void wait(std::shared_ptr<Mark> mark);
  void start_recording() { recording_ = std::make_shared<Recording>(); }
  std::shared_ptr<Recording> finish_recording();
  /// Does the work before `end`. Throws Fault; the GPU then hangs.
  void run_until(uint64_t end);
  void run_all() { run_until(end()); }
  Gpu& gpu() { return gpu_; }
  bool records() const { return recording_ && recording_->open; }

 private:
  /// Number of the next piece of work.
  uint64_t end() const { return first_ + queue_.size(); }
  void set(const std::shared_ptr<Mark>& mark);
  std::chrono::steady_clock::time_point now() const;
  void wait_until(Stream* stream, uint64_t end);
  void let_some_get_ahead();

  Gpu& gpu_;
  std::deque<Work> queue_;
  std::shared_ptr<Recording> recording_;
  uint64_t first_ = 0;
};

}  // namespace hearth::emu
