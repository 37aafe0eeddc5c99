#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace hearth {

namespace gpu {
class Stream;
}

/// The same as Exchange for a GPU's memory: what is called is put into a stream, and sums have the order
/// that the vendor's library chose.
class GpuExchange {
 public:
  virtual ~GpuExchange() = default;
  virtual void all_reduce(std::span<const std::span<float>> pieces, gpu::Stream& stream) = 0;
  virtual void reduce(std::span<const std::span<float>> pieces, int root, gpu::Stream& stream) = 0;
  virtual void broadcast(std::span<const std::span<float>> pieces, int root, gpu::Stream& stream) = 0;
};

/// What kernels of collectives reach the other workers by, from one thread at a time and in an order that all
/// workers share. Memory is the host's. A call returns when its memory may be used again, and never throws:
/// what failed is for whoever made the exchange to ask, and all later calls then leave memory as it is.
class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Each piece = its sum over all workers, by the order of distributed/sum.h; `wire` is the dtype that
  /// travels.
  virtual void all_reduce(std::span<const std::span<float>> pieces, DType wire) = 0;
  /// The same for worker `root` alone; what the others' pieces then are is undefined.
  virtual void reduce(std::span<const std::span<float>> pieces, int root) = 0;
  /// Each piece = that of worker `root`.
  virtual void broadcast(std::span<const std::span<float>> pieces, int root) = 0;
  /// The same for bytes; worker `root`'s are only read.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// To one worker, and from one; the others take no part. A send may wait until it is received.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;
  /// Null where GPUs do not reach one another.
  virtual GpuExchange* on_gpu() { return nullptr; }
};

}  // namespace hearth
