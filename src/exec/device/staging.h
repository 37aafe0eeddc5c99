#pragma once

#include <array>

#include "backend/gpu/device.h"

namespace hearth::exec {

/// How the inputs of programs that take turns reach a GPU: through two halves of page-locked memory, each
/// with its like on the GPU, so that one is filled and copied while kernels read the other.
class Staging {
 public:
  /// `on_gpu`: gpu_bytes(half_bytes) of the GPU's memory.
  Staging(gpu::Device& device, std::byte* on_gpu, int64_t half_bytes);
  static int64_t gpu_bytes(int64_t half_bytes) { return kNumHalves * half_bytes; }

  /// Makes it the next half's turn, and returns its host memory for the caller to fill. Waits until the GPU
  /// has taken what stood there.
  std::byte* fill();
  /// Of the half whose turn it is.
  std::byte* host() const { return memory_.data() + static_cast<int64_t>(half_) * half_bytes_; }
  /// Copies bytes [begin, end) of it to the GPU, once nothing reads that half any more.
  void send(int64_t begin, int64_t end);
  /// What is queued at `reader` from here on finds what was sent. Returns which half it is.
  size_t arrive(gpu::Stream& reader);
  /// `reader` is given nothing more that reads the half.
  void release(gpu::Stream& reader);
  std::byte* on_gpu(size_t half) const { return on_gpu_ + static_cast<int64_t>(half) * half_bytes_; }
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
