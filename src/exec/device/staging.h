#pragma once

#include <array>

#include "backend/gpu/device.h"

namespace hearth::exec {

/// Double buffer for the inputs of programs that run one at a time on a GPU: two halves in page-locked host
/// memory, each with a counterpart in GPU memory. While kernels read one half, the other is filled and
/// copied.
class Staging {
 public:
  /// `on_gpu`: GPU memory of gpu_bytes(half_bytes) bytes.
  Staging(gpu::Device& device, std::byte* on_gpu, int64_t half_bytes);
  static int64_t gpu_bytes(int64_t half_bytes) { return kNumHalves * half_bytes; }

  /// Switches to the other half and returns its host memory, which the caller fills. First waits until the
  /// last copy from it to the GPU is done.
  std::byte* fill();
  /// Returns the host memory of the current half.
  std::byte* host() const { return memory_.data() + static_cast<int64_t>(half_) * half_bytes_; }
  /// Queues a copy of bytes [begin, end) of the current half to the GPU. The copy starts when the kernels
  /// that read the previous contents are done (see release()).
  void send(int64_t begin, int64_t end);
  /// Makes later work of `reader` wait for the copies of the current half. Returns the index of the half.
  size_t arrive(gpu::Stream& reader);
  /// Declares that the work queued on `reader` so far is the last that reads the current half.
  void release(gpu::Stream& reader);
  /// Returns the GPU memory of a half.
  std::byte* on_gpu(size_t half) const { return on_gpu_ + static_cast<int64_t>(half) * half_bytes_; }
  /// Returns the number of calls of fill(), by which a caller detects that the half was filled again.
  int64_t num_fills() const { return num_fills_; }

  static constexpr size_t kNumHalves = 2;

 private:
  gpu::Stream stream_;
  gpu::HostMemory memory_;
  std::byte* on_gpu_;
  int64_t half_bytes_;
  size_t half_ = 0;
  int64_t num_fills_ = 0;
  std::array<gpu::Event, kNumHalves> sent_, released_;
};

}  // namespace hearth::exec
