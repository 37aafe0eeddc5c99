#pragma once

#include <optional>

#include "backend/gpu/device.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/staging.h"
#include "exec/executor.h"

namespace hearth::exec {

/// Memory for programs that run one at a time on a GPU: arena and staging on the GPU, and page-locked host
/// memory for offloaded activations.
class ProgramMemory {
 public:
  /// Bytes required by the largest program.
  struct Requirements {
    int64_t arena_bytes = 0;
    int64_t staging_bytes = 0;  ///< size of one half of the double buffer
    int64_t host_bytes = 0;
    /// Grows to the requirements of the program.
    void cover(const Program& program);
    /// Returns the bytes to allocate on the GPU: arena, staging and slack.
    int64_t gpu_bytes() const;
  };
  /// Puts arena and staging into `memory`, which has Requirements::gpu_bytes(); if null, allocates that
  /// memory.
  ProgramMemory(gpu::Device& device, const Requirements& needs, std::byte* memory = nullptr);

 private:
  friend class Gpu;
  std::unique_ptr<gpu::Memory> own_;
  std::byte* arena_;
  std::unique_ptr<gpu::HostMemory> host_;
  Staging staging_;
};

/// An open GPU and the memory that an engine's programs share on it, in one allocation.
class Gpu {
 public:
  /// Opens the GPU; throws UserError if there is none of that name, see choose_gpu.
  explicit Gpu(const GpuRequest& request);

  /// Bytes after all memory that a kernel may read out of bounds: vendors' BLAS libraries read past the end
  /// of thin operands (ROCm issues 6413, 6600, 6647).
  static constexpr int64_t kSlackBytes = 64 << 10;

  /// Returns the bytes that allocate() takes from the GPU.
  static int64_t needed_bytes(const PersistentLayout& layout, const ProgramMemory::Requirements& needs);
  /// Returns the free bytes less the reserve. A GPU that shares the processor's memory is also limited by the
  /// available host memory, less the `host_bytes` that the host is about to take.
  int64_t usable_bytes(int64_t host_bytes) const;
  /// Allocates memory for a complete layout. `image` is the layout's copy in host memory; it must outlive the
  /// programs and be page-locked if the layout has buffers that stay on the host. Throws DeviceError.
  void allocate(const PersistentLayout& layout, std::byte* image, const ProgramMemory::Requirements& needs);
  /// Returns the memory and streams of the engine's programs.
  Bindings places() { return bindings_in(*program_memory_); }
  /// Returns the memory and streams of a program that needs a separate room, to run alongside the others.
  Bindings bindings_in(ProgramMemory& room);

  /// Copies the persistent buffers of the image to the GPU, and waits.
  void upload();
  /// Copies the persistent buffers back to the image, and waits.
  void download();
  /// Queues a copy of the first bytes of a weight or state to page-locked host memory; valid after wait().
  void read(const PersistentBuffer& buffer, void* host, int64_t num_bytes);
  /// Waits until the compute queue is done. Throws DeviceError.
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
