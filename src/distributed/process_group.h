#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/function_ref.h"

namespace hearth::gpu {
class Stream;
}

/// Communication between ranks. Below ops/ in the layering: the kernels of collective ops call this
/// namespace.
namespace hearth::distributed {

/// A collective that timed out or failed. The text names the missing rank, the collective and the seconds
/// waited.
class CommError : public std::runtime_error {
 public:
  CommError(int rank, const std::string& what) : std::runtime_error(what), rank_(rank) {}
  /// Creates the error for a timeout: "rank 1 stopped in all_reduce 3 of step 412, rank 0 waited 5.0 s".
  static CommError missing(int rank, const std::string& whereabouts, int waiting, double seconds);
  /// Returns the rank that did not arrive; -1 if unknown.
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// Identifies a collective by its training step and its index within the step.
struct CollectiveId {
  int64_t step = 0;
  int64_t index = 0;
};
/// Describes a collective for messages: "all_reduce 3 of step 412".
std::string to_string(const char* collective, const CollectiveId& place);

/// Optional features of a process group.
enum class Capability : uint8_t {
  device_memory,  ///< has collectives on the memory of the ranks' devices, not only on host memory
  /// The cores that compute also copy the data, so running collectives in a separate thread is not faster.
  compute_cores,
};

/// One rank of a group of `size()` ranks. Every rank must call the same collectives in the same order with
/// the same sizes; arrays must not overlap. Not thread-safe.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  virtual ~ProcessGroup() = default;
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// True if the group has the capability. The result is the same on every rank.
  virtual bool has(Capability capability) const = 0;
  /// Sets the step and index that error messages name.
  virtual void set_collective_id(const CollectiveId& place) = 0;
  /// Extends the timeout of collectives by the time that ranks may compute between them.
  virtual void allow(double seconds) { allowed_seconds_ = seconds; }

  // Collectives on host memory. Each returns as soon as this rank may reuse its arrays. Throws CommError if a
  // rank does not arrive before the timeout.
  virtual void barrier() = 0;
  /// Replaces `data` by the sum over all ranks, added in the order of sum.h, so that every rank has the same
  /// bits. Values are sent in dtype `wire`: f32, bf16 or f8_e5m2; sums are computed in f32 and sent in
  /// sum_dtype(wire).
  virtual void all_reduce(std::span<float> data, DType wire) = 0;
  /// Like all_reduce in f32, but only rank `root` gets the sum. On the other ranks, `data` is undefined
  /// afterwards.
  virtual void reduce(std::span<float> data, int root);
  /// Like all_reduce, but the array is divided into size() equal parts, and rank r gets only the sum of part
  /// r, in `out`.
  virtual void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) = 0;
  /// Copies the array `in` of each rank r to part r of `out` on all ranks. All arrays have the same size.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// Copies `data` of rank `root` to all ranks.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// Sends `data` from this rank to rank `to`, without other ranks. May block until rank `to` has received
  /// it.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;

  // Collectives on device memory; need Capability::device_memory. Arrays are on this rank's device and have
  // `count` numbers of f32 or bf16, or `num_bytes` bytes. Each collective is queued on the stream. The order
  // of summation is chosen by the vendor's library. Throws CommError if the library reports an error,
  // InternalError without the capability.
  virtual void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream);
  virtual void reduce(void* data, int64_t count, DType dtype, int root, gpu::Stream& stream);
  /// `count` is the number of elements of each rank's part.
  virtual void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream);
  /// `num_bytes` is the size of each rank's part.
  virtual void all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream);
  virtual void broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream);
  virtual void send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream);
  virtual void receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream);

  // Functions for the kernels of a step, which must not throw.
  // Begins a step; its collectives are numbered from 0.
  void start_step(int64_t step) { collective_id_ = {.step = step, .index = 0}; }
  /// Runs the next collective of the step. Stores an exception that it throws for check(). After a failure,
  /// does nothing: memory stays unchanged.
  void in_step(FunctionRef<void()> collective) noexcept;
  /// Runs `collective` on all pieces of host memory as if they were one contiguous array.
  void in_step(std::span<const std::span<float>> pieces,
               FunctionRef<void(std::span<float>)> collective) noexcept;
  /// Rethrows the error of a collective of this step that failed, usually CommError. No kernel may be
  /// running.
  void check() const;
  /// Returns the total time spent in collectives of steps, in seconds.
  double seconds() const { return seconds_; }

 protected:
  double allowed_seconds() const { return allowed_seconds_; }

 private:
  double allowed_seconds_ = 0;
  CollectiveId collective_id_;
  std::vector<float> joined_;
  std::exception_ptr error_;
  double seconds_ = 0;
};

}  // namespace hearth::distributed
