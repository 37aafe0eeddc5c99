#pragma once

#include <optional>

#include "backend/gpu/device.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/staging.h"
#include "exec/executor.h"

namespace hearth::exec {

/// Memory for programs that run on a GPU one at a time: arena and staging buffer on the GPU, and page-locked
/// host memory for offloaded activations.
class ProgramMemory {
 public:
  /// Max number of bytes that any of the programs needs.
  struct Requirements {
    int64_t arena_bytes = 0;
    int64_t staging_bytes = 0;  ///< size of one half of the double-buffered inputs
    int64_t host_bytes = 0;
    /// Raises the requirements to those of the program.
    void cover(const Program& program);
    /// Returns the bytes to allocate on the GPU: arena, both halves of the staging buffer, and slack.
    int64_t gpu_bytes() const;
  };
  /// Uses `memory`, which has Requirements::gpu_bytes() bytes on the GPU, for arena and staging buffer. If it
  /// is null, allocates that memory.
  ProgramMemory(gpu::Device& device, const Requirements& needs, std::byte* memory = nullptr);

 private:
  friend class Gpu;
  std::unique_ptr<gpu::Memory> own_;
  std::byte* arena_;
  std::unique_ptr<gpu::HostMemory> host_;
  Staging staging_;
};

/// An open GPU, with one allocation for the memory that all programs of an engine share.
class Gpu {
 public:
  /// Opens the GPU that choose_gpu() selects. Throws UserError if there is none.
  explicit Gpu(const GpuRequest& request);

  /// Slack after all memory that a kernel may read past its end: the vendors' BLAS libraries read beyond thin
  /// operands (ROCm issues 6413, 6600, 6647).
  static constexpr int64_t kSlackBytes = 64 << 10;

  /// Returns the number of bytes that allocate() allocates on the GPU.
  static int64_t needed_bytes(const PersistentLayout& layout, const ProgramMemory::Requirements& needs);
  /// Returns the free bytes minus the reserve. For a GPU that shares the processor's memory, at most the
  /// available host memory minus `host_bytes`, which the host will allocate.
  int64_t usable_bytes(int64_t host_bytes) const;
  /// Allocates the GPU's memory for a complete layout. `image`: the copy of the weights and states in host
  /// memory; must outlive the programs, and be page-locked if some of them stay in host memory. Throws
  /// DeviceError.
  void allocate(const PersistentLayout& layout, std::byte* image, const ProgramMemory::Requirements& needs);
  /// Returns the memory and streams that the engine's programs share.
  Bindings places() { return bindings_in(*program_memory_); }
  /// Returns bindings for a program that runs alongside the others and therefore uses separate memory.
  Bindings bindings_in(ProgramMemory& room);

  /// Copies the persistent buffers (weights, states) from the host image to the GPU, and waits.
  void upload();
  /// Copies the persistent buffers back to the host image, and waits.
  void download();
  /// Queues a copy of the first `num_bytes` bytes of a weight or state to page-locked host memory, which is
  /// complete after wait().
  void read(const PersistentBuffer& buffer, void* host, int64_t num_bytes);
  /// Records in `event` the current end of the compute queue.
  void record(gpu::Event& event) { compute().record(event); }
  /// Waits until all work in the compute queue is done. Throws DeviceError.
  void wait() { compute().synchronize(); }
  gpu::Device& device() { return device_; }
  const Recorder& recorder() const { return recorder_; }

 private:
  gpu::Stream& compute() { return queues_[static_cast<size_t>(Queue::compute)]; }

  gpu::Device device_;
  int64_t reserve_bytes_;
  Recorder recorder_;
  gpu::Stream queues_[kNumQueues];
  std::unique_ptr<gpu::Memory> memory_;
  std::optional<ProgramMemory> program_memory_;
  std::byte* image_ = nullptr;
  std::vector<DevicePiece> pieces_;
};

}  // namespace hearth::exec
