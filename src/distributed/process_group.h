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

/// Communication between ranks. This room is below ops/, whose collective kernels call it.
namespace hearth::distributed {

/// A collective timed out: names the missing rank, the collective and the seconds waited.
class CommError : public std::runtime_error {
 public:
  CommError(int rank, const std::string& what) : std::runtime_error(what), rank_(rank) {}
  /// Creates the error: "rank 1 stopped in all_reduce 3 of step 412, rank 0 waited 5.0 s".
  static CommError missing(int rank, const std::string& whereabouts, int waiting, double seconds);
  /// Rank that is missing; -1 if unknown.
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// Step and index of a collective, for messages and the supervisor: "all_reduce 3 of step 412".
struct CollectiveId {
  int64_t step = 0;
  int64_t index = 0;
};
/// Describes a collective for messages.
std::string to_string(const char* collective, const CollectiveId& place);

/// Optional features of a process group.
enum class Capability : uint8_t {
  device_memory,  ///< collectives on the memory of the ranks' devices, not only on host memory
  compute_cores,  ///< bytes are moved by the cores that compute, so a separate communication thread gains
                  ///< nothing
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
  /// True if the group has the capability, the same on every rank.
  virtual bool has(Capability capability) const = 0;
  /// Sets the step and index that error messages name.
  virtual void set_collective_id(const CollectiveId& place) = 0;
  /// Extends the timeout by the seconds that ranks may compute between collectives.
  virtual void allow(double seconds) { allowed_seconds_ = seconds; }

  // Collectives on host memory. Each returns when this rank may reuse its memory, and throws CommError if a
  // rank does not arrive before the timeout.
  virtual void barrier() = 0;
  /// data = the sum over all ranks in the order of sum.h, with the same bits on every rank. Inputs and
  /// results are sent as dtype `wire`, f32 or bf16; sums are computed in f32.
  virtual void all_reduce(std::span<float> data, DType wire) = 0;
  /// Like all_reduce in f32, but only rank `root` gets the sum; the data of the others is undefined
  /// afterwards.
  virtual void reduce(std::span<float> data, int root);
  /// Like all_reduce, but rank r gets only part r of size() equal parts, in `out`.
  virtual void reduce_scatter(std::span<const float> in, std::span<float> out, DType wire) = 0;
  /// Part r of `out` = the `in` of rank r; all parts have equal size.
  virtual void all_gather(std::span<const std::byte> in, std::span<std::byte> out) = 0;
  /// Copies `data` of rank `root` to all ranks.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  /// Sends from this rank to `to`; other ranks are not involved. May block until it is received.
  virtual void send(std::span<const std::byte> data, int to) = 0;
  virtual void receive(std::span<std::byte> data, int from) = 0;

  // Collectives on device memory, for Capability::device_memory: arrays of `count` numbers, f32 or bf16, or
  // of bytes on this rank's device. Each is queued on the stream; the order of summation is the vendor
  // library's. Throws CommError if the library reports an error, InternalError without the capability.
  virtual void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream);
  virtual void reduce(void* data, int64_t count, DType dtype, int root, gpu::Stream& stream);
  /// `count` is the number of elements per rank.
  virtual void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream);
  /// `num_bytes` is the size of each rank's part.
  virtual void all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream);
  virtual void broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream);
  virtual void send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream);
  virtual void receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream);

  // For the kernels of a step, which must not throw.
  /// Begins a step; its collectives are numbered from 0.
  void start_step(int64_t step) { collective_id_ = {.step = step, .index = 0}; }
  /// Runs the step's next collective, unless an earlier one failed; memory is then unchanged. Its exception
  /// is stored for check().
  void in_step(FunctionRef<void()> collective) noexcept;
  /// Runs `collective` on all pieces of host memory as one contiguous array.
  void in_step(std::span<const std::span<float>> pieces,
               FunctionRef<void(std::span<float>)> collective) noexcept;
  /// Rethrows the error of a failed collective of a step, usually CommError. No kernel may be running.
  void check() const;
  /// Total seconds spent in collectives of steps.
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
