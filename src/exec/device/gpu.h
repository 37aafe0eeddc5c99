#pragma once

#include <optional>

#include "backend/gpu/device.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/staging.h"
#include "exec/executor.h"

namespace hearth::exec {

/// Memory of programs that run on a GPU in turns: arena and staging there, and what waits in page-locked
/// host memory.
class GpuRoom {
 public:
  struct Needs {
    int64_t arena_bytes = 0;
    int64_t staging_bytes = 0;  ///< of one half
    int64_t host_bytes = 0;
    void cover(const Program& program);
    int64_t gpu_bytes() const;
  };
  /// In `memory`, Needs::gpu_bytes() of it, or in memory of its own where that is null.
  GpuRoom(gpu::Device& device, const Needs& needs, std::byte* memory = nullptr);

 private:
  friend class Gpu;
  std::unique_ptr<gpu::Memory> own_;
  std::byte* arena_;
  std::unique_ptr<gpu::HostMemory> host_;
  Staging staging_;
};

/// An open GPU and what the programs of an engine share on it, in one allocation.
class Gpu {
 public:
  /// UserError where there is none of that name: see choose_gpu.
  explicit Gpu(const GpuWish& wish);

  /// Bytes after everything that a kernel may read by mistake: matmuls of vendors' libraries read past thin
  /// operands (ROCm issues 6413, 6600, 6647).
  static constexpr int64_t kSlackBytes = 64 << 10;

  /// Everything that allocate() takes from the GPU.
  static int64_t needed_bytes(const PersistentLayout& layout, const GpuRoom::Needs& needs);
  /// Free, beside the reserve. A GPU that shares the processor's memory has what is free there, less the
  /// bytes that the host is about to take.
  int64_t usable_bytes(int64_t host_bytes) const;
  /// The layout is complete, and `image` its bytes in host memory: page-locked where the layout has something
  /// stay there. Throws DeviceError.
  void allocate(const PersistentLayout& layout, std::byte* image, const GpuRoom::Needs& needs);
  Places places() { return places_in(*room_); }
  /// The same for a program that runs beside the others.
  Places places_in(GpuRoom& room);

  /// Copies what of the image is on the GPU there or back, and waits.
  void upload();
  void download();
  /// Queues a copy of a weight's or state's first bytes to page-locked host memory, for when the queue is
  /// waited for.
  void read(const PersistentBuffer& buffer, void* host, int64_t num_bytes);
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
  std::optional<GpuRoom> room_;
  std::byte* image_ = nullptr;
  std::vector<DevicePiece> pieces_;
};

}  // namespace hearth::exec
